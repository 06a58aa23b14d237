# Thin front door: every variable is a flag of `dlscale bench` in capitals. `make help` lists both.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
# With DLSCALE_MAKE set, the program's messages say WORKERS=2 instead of --workers=2.
DLSCALE := DLSCALE_MAKE=1 .venv/bin/dlscale

VARIABLES := FRAMEWORK VERSION MODEL GPUS NODES HOSTS CLUSTER SLURM_FLAGS WORKERS DEVICE BATCH IMAGE_SIZE STRATEGY KVSTORE CONTROLLER OPERATIONS \
  FUSION_THRESHOLD CYCLE_TIME COMPRESSION GPU_MEMORY PRESET TECHNIQUES INTERCONNECT IFACE HCA LINK_RATE LINK_DELAY PRECISION MODE DATA DECODE LOADER_WORKERS THREADS SETTINGS ITERATIONS EPOCHS WARMUP FIT CONCURRENT REPEAT SCALING ENGINE SEED OUT TIMEOUT \
  INACTIVITY_TIMEOUT TELEMETRY_HZ IDLE PROFILE PROFILE_AFTER PROFILE_ITERATIONS PROFILE_REGION PROFILE_TIMEOUT IMAGE MOUNT
SWITCHES := XLA OVERSUBSCRIBE COMPARE RESUME
STUDIES := SCALE DEVICE HOSTS FRAMEWORK VERSION ENGINE IMAGE MOUNT DATA

# The variables of each target. A command-line variable that no requested target takes is refused; make itself would ignore a typo.
TAKES.plan := $(VARIABLES) $(SWITCHES) FORMAT KIND REGISTRY
TAKES.bench := $(VARIABLES) $(SWITCHES) VERBOSE
TAKES.compare-interconnects := $(TAKES.bench)
TAKES.overhead := $(VARIABLES) $(SWITCHES) BESIDE_HOST
TAKES.ablate := $(VARIABLES) $(SWITCHES) BATCHES
TAKES.diagnose := FRAMEWORK VERSION MODEL HOSTS GPUS WORKERS DEVICE BATCH IMAGE_SIZE PRECISION PRESET THREADS ITERATIONS WARMUP REPEAT ENGINE TIMEOUT OUT \
  BASELINE JSON
TAKES.collect := DIR
TAKES.doctor := HOSTS IFACE
TAKES.clean := HOSTS
TAKES.regrade := DIR
TAKES.profile := RUN
TAKES.report := DIR OUT FORMAT
TAKES.compare := A B SINCE FAIL_ON_REGRESSION JSON MARKDOWN
TAKES.query := SQL IN CSV JSON
TAKES.published := MODEL FRAMEWORK SOURCE PLOT JSON
TAKES.reproduce := STUDY $(STUDIES) CLUSTER SLURM_FLAGS OUT PROGRAM CELLS DRY_RUN
TAKES.studies := $(STUDIES) JSON
TAKES.rig := NODES RATE DELAY
TAKES.sample := OUT
TAKES.torture := KILLS ENGINE CLUSTER
# Every target takes these: make passes them on to its children, for instance to a make that tests start.
ALWAYS := SHELL PYTHON PYTEST DLSCALE% PIP_% DOCKER_% CUDA_% %_proxy %_PROXY
GOALS := $(or $(MAKECMDGOALS),$(.DEFAULT_GOAL))
GIVEN := $(foreach v,$(.VARIABLES),$(if $(filter command,$(origin $(v))),$(v)))
UNKNOWN := $(sort $(filter-out $(ALWAYS) $(foreach goal,$(GOALS),$(TAKES.$(goal))),$(GIVEN)))
# The closest of some known words: `; did you mean bench? See`, or `; see` if none is close.
meant = $(or $(patsubst %,; did you mean %? See,$(shell $(PYTHON) -c 'import difflib, sys; a, b = map(str.split, sys.argv[1:]); \
  c = {w.lower(): w for w in b}; \
  print("-or-".join(dict.fromkeys(c[m] for w in a for m in difflib.get_close_matches(w.lower(), c, 2, 0.75))))' '$(subst ','\'',$(1))' '$(2)' 2>/dev/null)),; see)
TARGETS := $(shell sed -n 's/^\([a-z][a-z-]*\):.* ## .*/\1/p' Makefile)
STRANGE := $(filter-out $(TARGETS) .venv/%,$(MAKECMDGOALS))
COMMANDS = $(shell sed -n 's/^### dlscale \([a-z]*\)$$/\1/p' docs/options.md)
$(if $(STRANGE),$(error no target $(STRANGE)$(if $(filter $(COMMANDS),$(STRANGE)),; type `.venv/bin/dlscale $(STRANGE)`,$(subst -or-, or ,$(call meant,$(STRANGE),$(TARGETS))) `make help`)))
# A dry run of bench is a target of its own.
PLAN := $(if $(filter bench,$(GOALS)),$(filter DRY_RUN,$(UNKNOWN)))
$(if $(UNKNOWN),$(error `make $(GOALS)` takes no $(UNKNOWN)$(if $(PLAN),; type `make plan`,$(subst -or-, or ,$(call meant,$(UNKNOWN),$(foreach goal,$(GOALS),$(TAKES.$(goal))))) `make help`, and set what is for the environment before `make`)))
# make takes the last of `GPUS=1 GPUS=2`.
TWICE := $(shell sed -zn 's/^\([A-Z_]*\)=.*/\1/p' /proc/$$PPID/cmdline 2>/dev/null | sort -z | uniq -dz | tr '\0' ' ')
$(if $(strip $(TWICE)),$(error $(firstword $(TWICE)) is given twice; leave one of them out))

# make would export, and expand, the variables of its command line; the flags carry all of them, so export none.
unexport $(filter-out $(ALWAYS),$(GIVEN))

# FRAMEWORK=mxnet becomes --framework=mxnet. Whatever a value contains, it reaches the program as one argument: `value` expands no $.
lower = $(subst _,-,$(shell echo $(1) | tr A-Z a-z))
typed = '$(subst ','\'',$(value $(1)))'
flags = $(foreach v,$(1),$(if $(value $(v)),--$(call lower,$(v))=$(call typed,$(v))))
# XLA=1 becomes --xla; XLA=0 is the same as unset.
OFF := 0 no No NO false False FALSE off Off OFF
ON := 1 yes Yes YES true True TRUE on On ON
on = $(if $(filter-out $(OFF),$(value $(1))),$(or $(filter $(ON),$(value $(1))),\
  $(error $(1)=$(value $(1)) is neither on nor off; type $(1)=1 or leave it out)))
switches = $(foreach v,$(1),$(if $(call on,$(v)),--$(call lower,$(v))))
FLAGS = $(call flags,$(VARIABLES)) $(call switches,$(SWITCHES))

.PHONY: help help-all
help: ## list targets and variables
	$(call listed,split($$2, first, /[:;]/); $$2 = first[1])
	@echo; printf '%s\n' "Variables: $(VARIABLES)" "Switches: $(SWITCHES) (=1; 0, no, false or off for off)" "Example: make bench FRAMEWORK=mxnet MODEL=resnet18 WORKERS=1,2" | fmt -s -w 79
help-all: ## list targets with the variables of each
	$(call listed)
# One line per target: the text after its ##, wrapped at 78 columns.
listed = @awk -F ':.*\#\# ' '/^[a-z-]+:.*\#\# / {$(1); n = split($$2, words, " "); row = sprintf("  make %-12s", $$1); \
	  for (i = 1; i <= n; i++) {if (length(row words[i]) > 78) {print row; row = sprintf("%19s", "")} row = row " " words[i]} print row}' $(MAKEFILE_LIST)

.venv/ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "dlscale needs Python 3.10 or newer; set PYTHON=/path/to/one" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "dlscale needs Python's venv module; install it (Debian, Ubuntu: apt-get install python3-venv)" >&2; exit 2; }
	@echo "Setting up the runner (once) ..." >&2
	@$(PYTHON) -m venv .venv
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

.venv/ready-dev: .venv/ready requirements-dev.lock
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@touch $@

.PHONY: bench compare-interconnects plan collect diagnose doctor clean regrade profile report compare query published reproduce studies overhead ablate
bench: .venv/ready ## train, measure, and leave a record
	@$(DLSCALE) bench $(FLAGS) $(call switches,VERBOSE)
compare-interconnects: .venv/ready ## compare wires: every one that HOSTS or GPUS share, else emulated links
	@$(DLSCALE) bench --compare $(FLAGS) $(call switches,VERBOSE)
plan: .venv/ready ## print the exact command lines that bench would run; FORMAT=sbatch prints a Slurm script, FORMAT=k8s writes Kubernetes manifests, KIND=trainjob, REGISTRY=...
	@$(DLSCALE) plan $(FLAGS) $(call flags,FORMAT KIND REGISTRY)
collect: .venv/ready ## make records from the logs of pods: DIR=... written by `make plan FORMAT=k8s`
	@$(DLSCALE) collect $(call typed,DIR)
diagnose: .venv/ready ## measure each of HOSTS separately and name the slow ones (exit code 4); BASELINE=... of `dlscale baseline`, JSON=1
	@$(DLSCALE) diagnose $(FLAGS) $(call flags,BASELINE) $(call switches,JSON)
doctor: .venv/ready ## show this machine's hardware and which images run on it: with HOSTS=..., those of the hosts
	@$(DLSCALE) doctor $(call flags,HOSTS IFACE)
clean: .venv/ready ## remove leftovers of killed runs: containers, volumes, networks, processes; list the runs that are alive; with HOSTS=..., there
	@$(DLSCALE) clean $(call flags,HOSTS)
regrade: .venv/ready ## recompute a run's figures from its raw files: DIR=results/...
	@$(DLSCALE) regrade $(call typed,DIR)
profile: .venv/ready ## show the results of a profiling pass: RUN=results/...
	@$(DLSCALE) profile $(call typed,RUN)
report: .venv/ready ## write the report page: report.html and report.md with all records and studies; DIR=results/... (default: all of results) OUT=...; FORMAT=mllog writes MLPerf's log lines
	@$(DLSCALE) report $(if $(value DIR),$(call typed,DIR)) $(call flags,OUT FORMAT)
compare: .venv/ready ## find what got slower or faster: A=results/... before, B=results/... after, or A=last~1 B=last, or SINCE=yesterday; FAIL_ON_REGRESSION=3% exits with 4, JSON=1, MARKDOWN=1
	@$(DLSCALE) compare $(call typed,A) $(call typed,B) $(call flags,SINCE FAIL_ON_REGRESSION) $(call switches,JSON MARKDOWN)
query: .venv/ready ## query all records with SQL: SQL='SELECT run_id, validity_status FROM runs', IN=results/...; without SQL, list the tables; CSV=1, JSON=1
	@$(DLSCALE) query $(if $(value SQL),$(call typed,SQL),--tables) $(call flags,IN) $(call switches,CSV JSON)
published: .venv/ready ## show published figures: all, or of MODEL=..., FRAMEWORK=..., SOURCE=...; PLOT=FILE.png draws scaling curves
	@$(DLSCALE) published $(call flags,MODEL FRAMEWORK SOURCE PLOT) $(call switches,JSON)
reproduce: .venv/ready ## repeat a published study and compare with its figures: STUDY=..., SCALE=short or small; DEVICE, HOSTS, DATA, OUT, CELLS=..., DRY_RUN=1; IMAGE=... PROGRAM=PATH runs the source's own program
	@$(DLSCALE) reproduce $(call typed,STUDY) $(call flags,$(STUDIES) CLUSTER SLURM_FLAGS OUT PROGRAM CELLS) $(call switches,DRY_RUN)
studies: .venv/ready ## list the studies and how much of each can run here: SCALE=small, DEVICE=..., HOSTS=..., JSON=1
	@$(DLSCALE) studies $(call flags,$(STUDIES)) $(call switches,JSON)
overhead: .venv/ready ## measure what the suite itself costs: against the same training without it; BESIDE_HOST=1 adds ENGINE=host: the cost of the container
	@$(DLSCALE) overhead $(FLAGS) $(call switches,BESIDE_HOST)
ablate: .venv/ready ## measure the gain of each technique: adds those of PRESET=tuned one per line; BATCHES=512,1024 adds lines, BATCHES=grow doubles the batch as long as it gains, DATA=... compares losses
	@$(DLSCALE) ablate $(FLAGS) $(call flags,BATCHES)

.PHONY: rig
rig: .venv/ready ## start several hosts on this machine: prints their HOSTS file; NODES=4 RATE=1gbit; NODES=0 removes it
	@PYTHONPATH=tests .venv/bin/python -m testbed --nodes=$(call typed,NODES) $(call flags,RATE DELAY)

.PHONY: base images sample
base: .venv/ready ## make the base image: from a registry or this machine's own Debian mirror
	@$(DLSCALE) images base
images: .venv/ready ## build the newest CPU image of each framework
	@$(DLSCALE) images build --device cpu
sample: .venv/ready ## write a small data set of real JPEGs: OUT=/tmp/sample
	@$(DLSCALE) data sample $(if $(value OUT),$(call typed,OUT),sample)

.PHONY: test torture lint verify lock
test: .venv/ready-dev ## run every test that this machine can run
	@.venv/bin/python -m pytest --numprocesses=3 --dist=loadgroup $(PYTEST)
torture: .venv/ready-dev ## kill -9 the runner at seeded moments: KILLS=200 times, and check that no leftovers accumulate; ENGINE=docker, podman, apptainer or venv; CLUSTER=slurm cancels jobs by scancel
	@DLSCALE_KILLS=$(if $(value KILLS),$(call typed,KILLS),200) .venv/bin/python -m pytest $(PYTEST) $(if $(value CLUSTER),tests/hosts/test_slurm_ends.py -k $(call typed,CLUSTER),\
	  $(if $(filter-out docker,$(value ENGINE)),tests/containers/test_program_kills.py -k $(call typed,ENGINE),tests/containers/test_kills.py))
lint: .venv/ready-dev ## check the code: ruff, mypy, import contracts, shellcheck, Dockerfiles
	@.venv/bin/ruff check . && .venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports
	@.venv/bin/shellcheck .ci/run workloads/lease.sh
	@.venv/bin/hadolint --config images/hadolint.yaml $$(find images -name Dockerfile)
verify: .venv/ready ## fail if a generated file differs from what generates it
	@$(DLSCALE) images verify
	@$(DLSCALE) schema --check
	@$(DLSCALE) matrix --check
	@$(DLSCALE) report --check results/epyc-2core results/h200 results/h100
lock: .venv/ready-dev ## resolve the runner's own requirements anew
	@.venv/bin/uv pip compile --quiet --universal --generate-hashes --python-version 3.10 --no-python-downloads --no-annotate \
	  --no-header --no-emit-index-url --extra build pyproject.toml -o requirements.lock
	@.venv/bin/uv pip compile --quiet --universal --generate-hashes --python-version 3.10 --no-python-downloads --no-annotate \
	  --no-header --no-emit-index-url --extra build --extra dev -c requirements.lock pyproject.toml -o requirements-dev.lock
	@.venv/bin/uv pip compile --quiet --universal --generate-hashes --python-version 3.10 --no-python-downloads --no-annotate \
	  --no-header --no-emit-index-url -c requirements.lock workloads/imagenet_cnn/sample.in -o requirements-sample.lock
