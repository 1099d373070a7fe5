# rdmalab. `make help` lists what there is; every target is what CI runs, too.

SHELL := /bin/sh
# GO is the Go command: of PATH or, as sudo's path often lacks it, of where Go is usually unpacked.
ifeq ($(origin GO),undefined)
GO    := $(or $(shell command -v go 2>/dev/null),$(firstword $(wildcard /usr/local/go/bin/go /usr/lib/go/bin/go /snap/bin/go)),go)
endif
# All commands build in one way, as bin/rdmalab is built, so that none compiles again what another has compiled. Only the race detector
# needs cgo.
export GOFLAGS     := $(strip $(filter-out -trimpath,$(GOFLAGS)) -trimpath)
export CGO_ENABLED ?= 0
BIN   := $(CURDIR)/.bin

GOLANGCI_VERSION  := v2.15.0
GOFUMPT_VERSION   := v0.12.0
BENCHSTAT_VERSION := v0.0.0-20260908200009-22c9c6c9d4da
NFPM_VERSION      := v2.43.0
CYCLONEDX_VERSION := v1.9.0

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X github.com/rdmalab/rdmalab/cli.version=$(VERSION)

# The race detector needs a C compiler; without one the tests still run, and say so.
RACE := $(shell command -v gcc >/dev/null 2>&1 || command -v clang >/dev/null 2>&1 && echo -race)
# Every process with the race detector waits at its end for what its goroutines may still do: a second, if this says nothing else. Specs
# and tests start many.
export GORACE ?= atexit_sleep_ms=100

RACK      ?= $(or $(RDMALAB_RACK),default)
RACKFILE  ?=
SEEDS     ?= 1000
FUZZTIME  ?= 30s
BENCH     ?= .
BENCHTIME ?= 1s
BENCHLIMIT ?= 30m
COUNT     ?= 10
ROUNDS    ?= 5
ONLY      ?= .
PKG       ?= ./...
# MUTANTS is how many changes of each package make mutate tries; 0: all.
MUTANTS   ?= 0
# SKIPS is how many tests and specs may be skipped; -1: any number.
SKIPS     ?= -1
# EXPECT is a regular expression of reasons for which specs of interop may be skipped all the same.
EXPECT    ?= ^$$

# DOCKER_SUITES are run on containers by e2e-docker.
DOCKER_SUITES ?= container smoke transport chaos

# COMPOSED is the compose file of a rack that is not the built-in one as it is; that one's is in the repository.
COMPOSED := $(if $(filter-out default,$(RACK))$(RACKFILE)$(PLUG),bin/compose.yaml)

# SUITES are the packages of Ginkgo specs, which alone know its flags; UNIT are all others. Interop, container, cni, machines, verbs and apps have targets
# of their own.
TESTED := $(GO) list -f '{{.ImportPath}} {{.TestImports}} {{.XTestImports}}'
SUITES := $$($(TESTED) ./e2e/... | grep ginkgo | grep -v '/e2e/interop \|/e2e/container \|/e2e/cni \|/e2e/machines \|/e2e/verbs \|/e2e/apps ' | cut -d ' ' -f 1)
# NORACE are the tests of UNIT that the race detector would falsify, because it allocates, and long ones in virtual time; ALONE are the
# packages that have any.
UNIT   := $$($(TESTED) ./... | grep -v ginkgo | cut -d ' ' -f 1)
NORACE := Alloc|LargestRead|SimCalibrate|InVirtualTime
# VIRTUAL are the packages whose code and tests run in virtual time: test runs them without the race detector, which makes them some
# fifteen times as slow, and race with it. `go test ./e2e/layering -write` keeps the list.
VIRTUAL := clover clover/layout clover/meta clover/rpc experiment experiment/calibrate experiment/chains experiment/insim experiment/papers fusee fusee/layout fusee/snapshot onerma/executor onerma/nic plot rackfile rackfile/costs rackfile/rules redn sherman sherman/audit sherman/check sherman/layout sherman/lock sim/history sim/kvcsrack sim/scenario sim/simnet sim/simrack softrnic/capture/conform softrnic/capture/dump softrnic/capture/flows softrnic/capture/ladder softrnic/capture/pcapng softrnic/capture/story softrnic/clock softrnic/cm softrnic/congestion softrnic/congestion/notify softrnic/contention softrnic/cost softrnic/cq softrnic/engine softrnic/fault softrnic/mem softrnic/memgrant softrnic/memservice softrnic/metrics softrnic/nldev softrnic/paced softrnic/packetio softrnic/pathtrace softrnic/perf softrnic/portqueue softrnic/qpattr softrnic/reason softrnic/remotemem softrnic/selective softrnic/sendring softrnic/stall softrnic/transport softrnic/trunk softrnic/ucma softrnic/verbs softrnic/verbsengine softrnic/wire softrnic/wire/mad softrnic/wire/onerma store store/bytekeys store/kv store/kvcs store/lease store/memcached/text store/nictable store/passive store/pdpm store/rpc store/slab store/superblock store/template store/trace swordbox/apps swordbox/apps/forward swordbox/apps/swordbox swordbox/atomiccache swordbox/chipcost swordbox/cloversteer swordbox/conntrack swordbox/extmem swordbox/framering swordbox/handler swordbox/hotwords swordbox/journal swordbox/linkstate swordbox/lookuptable swordbox/packetbuffer swordbox/published/cloversteer swordbox/published/lookuptable swordbox/published/packetbuffer swordbox/published/serialize swordbox/published/statestore swordbox/requester swordbox/serialize swordbox/staleflows swordbox/statestore swordbox/switchconn swordbox/telemetry topo/rackplan topo/racks transitions units
# READERS only read files or build programs: there is nothing that could race either.
READERS := e2e/console e2e/coverage e2e/report compose/examples
# CHECKED is run by make check, which goes before make test.
CHECKED := e2e/layering
# LONG are those of them that take longest. They run first: at the end no processor waits for a single package.
LONG   := sim/scenario experiment/insim swordbox/serialize fusee sherman clover softrnic/transport sim/simrack e2e/console
PLAIN  := $(patsubst %,./%,$(LONG) $(filter-out $(LONG),$(VIRTUAL) $(READERS)))
RACED  := $$($(TESTED) ./... | grep -v ginkgo | cut -d ' ' -f 1 | grep -vxF "$$(printf 'github.com/rdmalab/rdmalab/%s\n' $(VIRTUAL) $(READERS) $(CHECKED))")
ALONE  := $$(grep -rlE --include='*_test.go' '^func (Test|Fuzz|Example)[A-Za-z0-9_]*($(NORACE))' . | xargs -n 1 dirname | sort -u | grep -vxF "$$(printf './%s\n' $(VIRTUAL))")
# Tests are vetted by make check, once, and not by each run in its way of building.
GOTEST := $(GO) test -vet=off -json
# RACETEST is GOTEST with the race detector, if there is a C compiler.
CGO      := $(if $(RACE),env CGO_ENABLED=1)
RACETEST := $(CGO) $(GOTEST) $(RACE)
# PROGRAM lets suites take what the target build has made; without it each builds its own.
PROGRAM := RDMALAB_E2E_PROGRAM=$(CURDIR)/bin/rdmalab
# NOW says in a report when a part of it began.
NOW = echo "-- $(1), at $$(date -u +%H:%M:%S)"
# LIMITS make a spec that hangs say where it is, and end before its package does. What they say goes through a report, not to
# a terminal.
LIMITS := -ginkgo.no-color -ginkgo.poll-progress-after=150s -ginkgo.timeout=13m

# IDLE runs a command at idle priority, or at the lowest one that the machine allows.
IDLE = $$(.ci/idle true 2>/dev/null && echo .ci/idle || echo setsid --wait nice -n 19)

# ENDED prints the exit status of a go command that failed, for the report: the command may have died without saying so.
ENDED = || echo "go test ended with status $$?"

# AGAIN is make in a line that make -n only shows: make would run one with its own name in it.
AGAIN = $(MAKE) --no-print-directory

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  variables: RACK=$(RACK) RACKFILE=$(RACKFILE) SEEDS=$(SEEDS) FEW=$(FEW) FUZZTIME=$(FUZZTIME) BENCH=$(BENCH) BENCHTIME=$(BENCHTIME) COUNT=$(COUNT) PKG=$(PKG)"

.PHONY: verbs
verbs: ## the library for unmodified RDMA programs, if its C sources have changed (gcc, gcc-aarch64-linux-gnu, linux-libc-dev)
	@softrnic/uverbs/preload/build

.PHONY: build
build: ## build bin/rdmalab, one static binary
	@command -v $(GO) >/dev/null || { echo "no $(GO) in this path: write make build as your user, then sudo bin/rdmalab up; or sudo make up GO=/path/to/go" >&2; exit 1; }
	@softrnic/uverbs/preload/build >/dev/null 2>&1 || echo "the library for unmodified RDMA programs has changed, and is not built for every processor: make verbs says why"
	@CGO_ENABLED=0 $(GO) build -ldflags '$(LDFLAGS)' -o bin/rdmalab ./cmd/rdmalab

.PHONY: up
up: build ## bring the default rack up and verify every compute-to-memory path (root)
	@bin/rdmalab --rack $(RACK) up $(if $(RACKFILE),-f $(RACKFILE))

.PHONY: down
down: build ## take the rack away, whatever state it is in (root)
	@bin/rdmalab --rack $(RACK) down

.PHONY: image
image: build ## the container image of bin/rdmalab, without a registry (docker)
	@bin/rdmalab image

.PHONY: compose-up
compose-up: image ## the default rack with its hosts in containers, by compose (root, docker); PLUG=outside, holder or driver
	@$(if $(COMPOSED),bin/rdmalab --rack $(RACK) compose $(RACKFILE) $(PLUG:%=--plug %) >$(COMPOSED))
	@bin/rdmalab --rack $(RACK) up $(if $(RACKFILE),-f $(RACKFILE)) --compose $(or $(COMPOSED),compose/docker-compose.yaml)

.PHONY: compose-down
compose-down: build ## take it away, containers, networks and all
	@bin/rdmalab --rack $(RACK) down

# Tests in virtual time and the first FEW seeds of the scenarios need no rack: they run at idle priority beside unit tests with the race
# detector and the suites on racks, and what they say comes at the end. Suites run after the unit tests: each daemon of a rack has a
# scheduling group of its own where the kernel makes one for each session, and a switch that gets no processor for half a second costs
# connections. FIRST_OF_TWO and SECOND_OF_TWO are suites that mostly wait, for timeouts and for hosts that come back: one of each runs at
# a time. Suites in neither list run alone, as smoke does, which brings up a hundred hosts at once. Packages are built before, as two
# compilations of one would take twice as long.
FIRST_OF_TWO  := switch transport kvcs onerma sherman
SECOND_OF_TWO := chaos clover docs fusee nictable endure
SUITE = $(PROGRAM) $(1) $(RACETEST) -count=1 -p 1 -timeout 15m $(2) -args $(LIMITS) -ginkgo.randomize-all

.PHONY: test
test: build ## unit, simulation and e2e tests: whatever this machine can run
	@[ -n "$(RACE)" ] || echo "no C compiler: the race detector is off"
	@[ "$$(id -u)" = 0 ] || echo "not root: the tests that need namespaces are skipped"
	@rm -rf out/test; mkdir -p out/test; cp bin/rdmalab out/test
	@{ $(call NOW,packages are built); $(CGO) $(GO) build $(RACE) ./...; \
	   $(IDLE) $(AGAIN) virtual & virtual=$$!; trap "kill -- -$$virtual 2>/dev/null" EXIT; trap "exit 1" HUP INT PIPE TERM; \
	   $(call NOW,unit tests); $(RACETEST) -shuffle=on -timeout 30m -skip '$(NORACE)' $(RACED) $(ENDED); \
	   $(call NOW,those without the race detector); $(GOTEST) -run '$(NORACE)' $(ALONE) $(ENDED); \
	   $(call NOW,suites that run two at a time); $(call SUITE,setsid,$(SECOND_OF_TWO:%=./e2e/%)) >out/test/second.json 2>&1 & second=$$!; \
	   trap "kill -- -$$virtual -$$second 2>/dev/null" EXIT; $(call SUITE,,$(FIRST_OF_TWO:%=./e2e/%)) $(ENDED); wait $$second $(ENDED); cat out/test/second.json; \
	   $(call NOW,other suites); \
	   $(call SUITE,,$$(printf '%s\n' $(SUITES) | grep -vxF "$$(printf 'github.com/rdmalab/rdmalab/e2e/%s\n' $(FIRST_OF_TWO) $(SECOND_OF_TWO))")) $(ENDED); \
	   $(call NOW,those in virtual time); .ci/awake $$virtual; wait $$virtual; cat out/test/virtual.json; \
	   $(call NOW,the end); } 2>&1 | $(GO) run ./e2e/report -skips $(SKIPS) -expect 'race detector|RDMA_CORE_SOURCE'
	@cat out/test/scenarios.txt; exit "$$(cat out/test/scenarios.status)"

# Tests in virtual time make a rack for each seed, and little of it lives long: the garbage collector runs less often than usual.
.PHONY: virtual
virtual: export GOGC := 400
virtual:
	@{ $(GOTEST) -shuffle=on -timeout 60m $(PLAIN) $(ENDED); } >out/test/virtual.json 2>&1; \
	$(AGAIN) scenarios SEEDS=$(FEW) SIM="out/test/rdmalab sim" >out/test/scenarios.txt 2>&1; echo $$? >out/test/scenarios.status

# FEW are the first seeds of the scenarios, which make test runs, and SEEDS all; FROM is the first one of make scenarios. What is run
# for a quarter of the seeds begins at the quarter of FROM.
FEW     ?= 50
FROM    ?= 1
# SIM is the simulator; a copy of the program, which is not built then, when another one is built meanwhile.
SIM     ?= bin/rdmalab sim
SIMBUILT := $(if $(filter bin/rdmalab,$(SIM)),build)
QUARTER := --first $$(( ($(FROM) + 2) / 4 + 1 )) --seeds $$(( ($(SEEDS) + 3) / 4 ))

# SWEPT are the scenarios that run with each seed, FEWER those for which some seeds are enough, with their number behind a colon. A test
# refuses a scenario that is in neither and has no line of its own below.
SWEPT := transport uc ud srq locks state-store telemetry buffer lookup clover sherman fusee template bytekeys pdpm-direct pdpm-central nictable onerma kvcs redn redn-locks
FEWER := crash:20 partition:20 rnr:20 hostile:20 crowd:3 soak:5

.PHONY: scenarios
scenarios: $(SIMBUILT) ## the scenarios in virtual time, SEEDS seeds each from FROM on, and 12 schedules of planned for each
	@$(call NOW,scenarios: $(SEEDS) seeds of each from $(FROM) on)
	@for s in $(SWEPT); do $(SIM) $$s --first $(FROM) --seeds $(SEEDS) || exit 1; done
	@for s in "locks --change rules" "locks --change modes" "buffer --change modes" "sherman --locks switch" "clover --steer any" "clover --steer both --share-qp" \
	  "transport --congestion any --recovery any" "locks --congestion any" "clover --congestion any --recovery any"; do \
	  $(SIM) $$s $(QUARTER) || exit 1; \
	done
	@for s in $(FEWER); do $(SIM) $${s%:*} --seeds $${s#*:} || exit 1; done
	@$(SIM) planned --schedules $$(( ($(FROM) - 1 + $(SEEDS)) * 12 ))
	@$(SIM) holes

# SEARCHED are setups of planned with the number of schedules within which a switch that lacks a protection is found out
# (swordbox/serialize): a sound one does no damage in all of them.
SEARCHED := neighbour:400 rules:2000 first-rules:3500 long-rules:3000 behind:400

.PHONY: sweep
sweep: $(SIMBUILT) ## the seeds of the scenarios behind those of make test, up to SEEDS, all schedules of planned, steering-rows unless ROWS=no
	@$(MAKE) --no-print-directory scenarios FROM=$$(( $(FEW) + 1 )) SEEDS=$$(( $(SEEDS) - $(FEW) ))
	@for s in $(SEARCHED); do $(SIM) planned --setup $${s%:*} --schedules $${s#*:} || exit 1; done
	@$(SIM) planned --first 2 --seeds 15 --schedules 400
	@$(SIM) holes --seeds 16
	@RDMALAB_LONG=1 $(GO) test -count 1 -timeout 1h ./redn
	@RDMALAB_LONG=1 $(GO) test -count 1 -timeout 1h -run 'FillAndEmpty|EpochsDoNotGoBack|SparseLeavesGiveRoomBack|ProgramsOfClientsThatHaveGone|RandomTraffic' ./clover ./sherman ./store/nictable ./softrnic/transport
	@RDMALAB_LONG=1 $(GO) test -count 1 -timeout 1h ./sim/scenario
	@$(if $(filter no,$(ROWS)),echo "left out: make steering-rows takes an hour",$(MAKE) --no-print-directory steering-rows)
	@RDMALAB_LONG=1 $(GO) test -count 1 -timeout 1h -run 'NothingLeaks|ScribbledRings|HostileConnections' ./softrnic/ipc

.PHONY: steering-rows
steering-rows: ## rows of steering-gain, 200 ms of virtual time each, against testdata/steering-gain.csv of experiment/insim (an hour)
	@RDMALAB_LONG=1 $(GO) test -count 1 -timeout 3h -run SteeringRowsDoNotChange ./experiment/insim

.PHONY: constructs
constructs: ## the constructs of redn on a device in real time, 100,000 random inputs each, with and without polling
	@RDMALAB_LONG=1 $(GO) test -count 1 -timeout 1h -v -run 'TestConformance/.*/SendRing' ./softrnic/device

# SOAKED are the scenarios of soak with their flags behind colons, FIRST the first seed of each, and SOAKTIME after how long nothing
# is begun any more. A soak of half an hour or more also runs all of e2e-apps. At the end it says how many seeds and schedules there were.
# Specs that are not in focus count as skipped, so any number may be.
SOAKED   ?= transport locks locks:--change:rules locks:--change:modes clover sherman sherman:--locks:switch fusee
FIRST    ?= 100001
SOAKTIME ?= 10m
.PHONY: soak
soak: build ## long soaks on a rack (root), then seeds of all scenarios from FIRST on, and schedules of 3 acts, until SOAKTIME is over
	@mkdir -p out; date +%s >out/soak.began
	@$(MAKE) --no-print-directory mutate MUTANTS=5 SEED=$(FIRST) LEAST=40 MUTATED='softrnic/mem softrnic/cm'
	@end=$$(( $$(cat out/soak.began) + $$(echo $(SOAKTIME) | sed 's/m$$/*60/; s/s$$//; s/h$$/*3600/') )); first=$(FIRST); seeds=0; schedules=0; \
	$(PROGRAM) RDMALAB_E2E_LONG=1 $(RACETEST) -count=1 -timeout 25m ./e2e/transport \
	  -args $(LIMITS) -ginkgo.focus='arrive whole' 2>&1 | $(GO) run ./e2e/report || exit 1; \
	[ $$(( end - $$(cat out/soak.began) )) -lt 1800 ] || $(AGAIN) e2e-apps || exit 1; \
	while [ "$$(date +%s)" -lt "$$end" ]; do \
	  for s in $(SOAKED); do \
	    [ "$$(date +%s)" -lt "$$end" ] || break; \
	    $(SIM) $$(echo $$s | tr : " ") --first $$first --seeds 250 || exit 1; seeds=$$((seeds + 250)); \
	  done; \
	  [ "$$(date +%s)" -lt "$$end" ] || break; \
	  $(SIM) planned --depth 3 --schedules 20000 --seed $$first || exit 1; schedules=$$((schedules + 20000)); \
	  first=$$((first + 250)); \
	done; \
	echo "soak: $$seeds seeds from $(FIRST) on, $$schedules schedules of 3 acts, in $(SOAKTIME)"

# LASTS is how long make endure loads the rack.
LASTS ?= 1h
.PHONY: endure
endure: build ## a rack at full load for LASTS, with faults and programs that misbehave and die: no connection is lost, nothing grows (root)
	@$(PROGRAM) RDMALAB_ENDURE=$(LASTS) $(GOTEST) -count=1 -timeout 0 ./e2e/endure -args -ginkgo.timeout=100h 2>&1 | $(GO) run ./e2e/report

# MUTATED are the packages of mutate: the NIC, and the pure packages of the switch and the stores; behind = are those whose tests count. Those of the engine are also the conformance tests of the device. The tests of serve are mostly those of its parent and, for C programs, of uverbs; those of meta are of the store.
MUTATED ?= softrnic/wire softrnic/wire/mad softrnic/mem softrnic/transport softrnic/engine=softrnic/engine,softrnic/device softrnic/cm softrnic/ipc/serve=softrnic/ipc/serve,softrnic/ipc,softrnic/uverbs \
  swordbox/transform swordbox/atomiccache swordbox/conntrack swordbox/switchconn swordbox/requester=swordbox/requester,swordbox/serialize swordbox/serialize rackfile/rules \
  swordbox/journal swordbox/pipeline swordbox/cloversteer swordbox/staleflows swordbox/statestore swordbox/telemetry swordbox/extmem swordbox/framering swordbox/packetbuffer swordbox/lookuptable clover/layout clover/meta=clover/meta,clover clover/rpc \
  sherman/layout sherman/check sherman/lock fusee/layout fusee/snapshot softrnic/wire/onerma onerma/nic store/kv

.PHONY: mutate
mutate: ## what the tests notice: small changes of packages, one at a time; MUTANTS of each by SEED, MUTATED, LEAST in percent
	@$(GO) run ./e2e/mutate -n $(MUTANTS) -seed $(or $(SEED),1) -min $(or $(LEAST),0) $(MUTATED)

.PHONY: planted
planted: ## bugs of the stores that are written down (e2e/mutate/planted), each with what must notice it; PLANTED=part of a name
	@$(GO) run ./e2e/mutate -planted "$(or $(PLANTED),all)" -timeout 10m

.PHONY: race
race: ## the unit tests that run in virtual time, with the race detector
	@$(RACETEST) -shuffle=on -timeout 60m $(VIRTUAL:%=./%) 2>&1 | $(GO) run ./e2e/report

.PHONY: unit
unit: ## unit tests alone; no privilege needed
	@$(RACETEST) -shuffle=on -timeout 20m $(UNIT) 2>&1 | $(GO) run ./e2e/report

.PHONY: e2e
e2e: build ## the suites on real racks (root); FOCUS=regexp picks specs
	@$(PROGRAM) $(RACETEST) -count=1 -p 1 -timeout 15m $(SUITES) \
	  -args $(LIMITS) -ginkgo.randomize-all $(if $(FOCUS),-ginkgo.focus='$(FOCUS)') 2>&1 | $(GO) run ./e2e/report -skips $(SKIPS)

.PHONY: e2e-cni
e2e-cni: build ## containers join a rack by the CNI plugin: with cnitool, and with podman if it is there (root)
	@$(PROGRAM) $(RACETEST) -count=1 -timeout 10m ./e2e/cni -args $(LIMITS) -ginkgo.label-filter=cni \
	  $(if $(FOCUS),-ginkgo.focus='$(FOCUS)') 2>&1 | $(GO) run ./e2e/report -skips $(SKIPS) -expect '$(EXPECT)'

.PHONY: e2e-machines
e2e-machines: build ## racks on several machines, which are namespaces with an sshd each (root; openssh-server, iproute2)
	@$(PROGRAM) $(RACETEST) -count=1 -timeout 10m ./e2e/machines -args $(LIMITS) \
	  $(if $(FOCUS),-ginkgo.focus='$(FOCUS)') 2>&1 | $(GO) run ./e2e/report -skips $(SKIPS)

.PHONY: e2e-verbs
e2e-verbs: build ## the distribution's own RDMA programs, unmodified, on hosts of a rack (root; ibverbs-utils, rdmacm-utils, perftest)
	@$(PROGRAM) $(RACETEST) -count=1 -timeout 25m ./e2e/verbs -args $(LIMITS) -ginkgo.timeout=24m \
	  $(if $(FOCUS),-ginkgo.focus='$(FOCUS)') 2>&1 | $(GO) run ./e2e/report -skips $(SKIPS)

# APPS=short leaves out what takes long, and what CI does not install.
.PHONY: e2e-apps
e2e-apps: build ## RDMA programs of other packages in all ways (root; apt packages of e2e/apps); APPS=short, WRITE=yes writes the results into docs/reference/programs.md
	@$(PROGRAM) RDMALAB_APPS=$(APPS) $(RACETEST) -count=1 -timeout 60m ./e2e/apps -args $(LIMITS) -ginkgo.timeout=59m $(if $(WRITE),-write) \
	  $(if $(FOCUS),-ginkgo.focus='$(FOCUS)') 2>&1 | $(GO) run ./e2e/report -skips $(SKIPS)

.PHONY: e2e-docker
e2e-docker: build ## the suites on racks whose hosts are containers (root, docker); PLUG=outside, holder or driver
	@$(PROGRAM) RDMALAB_E2E_RUNTIME=docker$(if $(PLUG),:$(PLUG)) $(RACETEST) -count=1 -p 1 -timeout 25m $(DOCKER_SUITES:%=./e2e/%) \
	  -args $(LIMITS) -ginkgo.randomize-all $(if $(FOCUS),-ginkgo.focus='$(FOCUS)') 2>&1 | $(GO) run ./e2e/report -skips $(SKIPS)

.PHONY: e2e-web
e2e-web: build ## the page of rdmalab web in a headless Chromium, on a rack (root, apt package chromium); pictures go to out/web
	@$(PROGRAM) $(GOTEST) -count=1 -timeout 10m -tags chromium ./e2e/web -args $(LIMITS) 2>&1 | $(GO) run ./e2e/report -skips $(SKIPS)

.PHONY: interop
interop: build ## our NIC and the one of a Linux kernel in a virtual machine (root, QEMU, apt); writes e2e/interop/MATRIX.md
	@$(PROGRAM) $(RACETEST) -count=1 -timeout 20m ./e2e/interop \
	  -args $(LIMITS) $(if $(FOCUS),-ginkgo.focus='$(FOCUS)') 2>&1 | $(GO) run ./e2e/report -skips $(SKIPS) -expect '$(EXPECT)'

# SUITES_AGAIN runs suites once more: the runs (what the switch does, and the suite), how they differ from other runs, the environment that
# makes them so, and more flags of e2e/report.
SUITES_AGAIN = for run in $(1); do \
	  $(call NOW,$(2): $$run); \
	  $(PROGRAM) $(3) RDMALAB_E2E_SWITCH=$${run%:*} $(RACETEST) -count=1 -p 1 -timeout 25m ./e2e/$${run\#*:} \
	    -args $(LIMITS) $(if $(FOCUS),-ginkgo.focus='$(FOCUS)') 2>&1 | $(GO) run ./e2e/report -skips $(SKIPS) $(4) || exit 1; \
	done

# THROUGH are the runs of `make transparency`: what the switch does, and the suite.
THROUGH := track:transport track:interop move:transport move:interop

.PHONY: transparency
transparency: build ## the suites transport and interop again, through a switch that tracks and through one that moves requests
	@$(call SUITES_AGAIN,$(THROUGH),through a switch that does,,-expect '$(EXPECT)')

# SINGLE are the runs of `make singleframes`: what the switch does, "" or as in THROUGH, and the suite.
SINGLE := :transport :switch track:transport move:transport

.PHONY: singleframes
singleframes: build ## the suites transport and switch again, without super-frames: gso: off on all hosts
	@$(call SUITES_AGAIN,$(SINGLE),without super-frames,RDMALAB_E2E_GSO=off,)

# MEMORY are the runs of `make memorylinks`: what the switch does, "" or as in THROUGH, and the suite.
MEMORY := :transport :switch move:transport

.PHONY: memorylinks
memorylinks: build ## the suites transport and switch again, over memory links: cable: memory in all rack files
	@$(call SUITES_AGAIN,$(MEMORY),over memory links,RDMALAB_E2E_CABLE=memory,)

# COMPACT are the runs of `make compact`: what the switch does, "" or as in THROUGH, and the suite.
COMPACT := :transport :switch :chaos :verbs :apps move:transport

.PHONY: compact
compact: build ## the suites transport, switch, chaos, verbs and apps again, on compact racks: daemons: shared in all rack files
	@$(call SUITES_AGAIN,$(COMPACT),on compact racks,RDMALAB_E2E_DAEMONS=shared RDMALAB_APPS=short,)

# FABRIC are the runs of `make fabric`: what the switches do, "" or as in THROUGH, and the suite.
FABRIC := :transport move:transport

.PHONY: fabric
fabric: build ## the suite transport again, over two leaves and two spines: key fabric in all rack files
	@$(call SUITES_AGAIN,$(FABRIC),over a fabric,RDMALAB_E2E_FABRIC=leaves,)

.PHONY: coverage
coverage: ## queue pair state × opcode × fault: what the tests have seen, as a table; fails on a gap
	@mkdir -p out && rm -f out/coverage.txt
	@RDMALAB_COVERAGE=$(CURDIR)/out/coverage.txt $(GO) test -tags qpcover -count=1 -timeout 60m -skip '$(NORACE)' \
	  ./softrnic/transport ./softrnic/engine ./sim/simrack ./sim/scenario >out/coverage.log || { cat out/coverage.log; exit 1; }
	@$(GO) run ./e2e/coverage out/coverage.txt

.PHONY: sim
sim: build ## the transport scenario over SEEDS seeds in virtual time; SEED=n replays one
	@bin/rdmalab sim transport $(if $(SEED),--seed $(SEED),--seeds $(SEEDS))

.PHONY: check
check: fmt-check lint ## what must hold before a commit: format, vet, lint, tidy modules, layering, generated documents
	@$(GO) vet ./...
	@$(GO) mod tidy -diff
	@CGO_ENABLED=0 GOARCH=arm64 $(GO) build -o /dev/null ./cmd/rdmalab
	@softrnic/uverbs/preload/build --check
	@$(GO) test -count=1 ./e2e/layering
	@$(GO) test -count=1 ./cli -run '^TestReference$$' -docs check
	@$(GO) test -count=1 ./e2e/mutate -run '^TestPlantedBugsCanBePlanted$$'

.PHONY: docs
docs: ## write the generated parts of the pages under docs: commands, rack file, counters, faults, packages, what sim prints
	@$(GO) test -count=1 ./cli -run '^TestReference$$' -docs write
	@$(GO) test -count=1 ./e2e/console -run '^TestPagesOfTheSimulator$$' -args -write

.PHONY: fmt
fmt: $(BIN)/gofumpt ## format the code
	@$(BIN)/gofumpt -l -w $$(git ls-files '*.go')

.PHONY: fmt-check
fmt-check: $(BIN)/gofumpt
	@bad=$$($(BIN)/gofumpt -l $$(git ls-files '*.go')); [ -z "$$bad" ] || { echo "run make fmt for:"; echo "$$bad"; exit 1; }

.PHONY: lint
lint: $(BIN)/golangci-lint ## the linters that guard the design
	@$(BIN)/golangci-lint run --allow-parallel-runners ./...

# TIMEISUP accepts a fuzz log whose only complaint is that FUZZTIME ended while a worker was in a call: the testing package then
# reports "context deadline exceeded" as a failure. A finding, a panic or a hang writes other lines, and stays a failure.
TIMEISUP := awk '/^    context deadline exceeded$$/ {ended = 1; next} /^(--- FAIL: |FAIL$$|fuzz: )/ {next} NF {other = 1} END {exit !ended || other}'

# FUZZED prints the packages with fuzz targets, one a line: folder, import path, targets.
FUZZED := $(GO) list -f '{{.Dir}} {{.ImportPath}}{{range .TestGoFiles}} {{.}}{{end}}{{range .XTestGoFiles}} {{.}}{{end}}' ./... | \
  while read -r dir pkg files; do [ -z "$$files" ] || echo "$$dir $$pkg" $$(cd "$$dir" && sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' $$files); done | \
  grep ' Fuzz'

.PHONY: fuzz-built
fuzz-built: ## build what make fuzz runs: a program for each package
	@mkdir -p out/fuzz
	@$(FUZZED) | while read -r dir pkg targets; do $(GO) test -vet=off -c -fuzz . -o out/fuzz/$$(echo "$$pkg" | tr / -).test "$$pkg" || exit 1; done

.PHONY: fuzz
fuzz: fuzz-built ## every fuzz target for FUZZTIME
	@cache=$$($(GO) env GOCACHE)/fuzz; \
	$(FUZZED) | while read -r dir pkg targets; do \
	  for f in $$targets; do \
	    echo "$$f $$pkg"; \
	    (cd "$$dir" && $(CURDIR)/out/fuzz/$$(echo "$$pkg" | tr / -).test -test.paniconexit0 -test.run '^$$' -test.fuzz "^$$f\$$" \
	      -test.fuzztime $(FUZZTIME) -test.fuzzminimizetime 100x -test.fuzzcachedir "$$cache/$$pkg") >out/fuzz.log 2>&1 || \
	    { cat out/fuzz.log; $(TIMEISUP) out/fuzz.log; } || exit 1; \
	  done || exit 1; \
	done

.PHONY: bench
bench: $(BIN)/benchstat ## benchmarks, COUNT runs each, kept in out/bench.txt; a package may take BENCHLIMIT=30m
	@mkdir -p out && rm -f out/bench.failed
	@{ $(GO) test -run '^$$' -timeout $(BENCHLIMIT) -bench '$(BENCH)' -benchtime $(BENCHTIME) -benchmem -count $(COUNT) $(PKG) || touch out/bench.failed; } | tee out/bench.txt
	@[ ! -e out/bench.failed ] || { echo "a benchmark failed; the end of out/bench.txt:"; tail -n 40 out/bench.txt; exit 1; } >&2
	@$(BIN)/benchstat out/bench.txt

.PHONY: bench-compare
bench-compare: $(BIN)/benchstat ## compare two files of make bench: OLD=a NEW=b
	@$(BIN)/benchstat $(OLD) $(NEW)

.PHONY: bench-rack
bench-rack: build ## rates, bandwidths and latencies of a rack beside raw frames, and of the stores; ROUNDS=5, ONLY=regexp (root)
	@mkdir -p out && $(GO) build -o out/benchrack ./e2e/benchrack && out/benchrack -rounds $(ROUNDS) -only '$(ONLY)' -o out/bench-rack.txt

.PHONY: bench-verbs
bench-verbs: ## perftest, unmodified, on hosts of a rack beside the same tests by the daemons, in turn; ROUNDS=5 (root; package perftest)
	@$(AGAIN) bench-rack ONLY='^verbs/'

# KVM=1 lets KVM run the virtual machines; without it their processors are emulated, and only ratios mean anything. CPUS is how many each has.
.PHONY: bench-rxe
bench-rxe: build ## perftest, unmodified, over a stock kernel's NIC and over this one, in the same guests; ROUNDS=5, ONLY=regexp (QEMU, apt)
	@mkdir -p out && $(GO) build -o out/benchrack ./e2e/benchrack && CGO_ENABLED=0 $(GO) build -trimpath -o out/guest ./e2e/interop/guest && \
	  out/benchrack -rxe -rounds $(ROUNDS) -only '$(ONLY)' $(if $(KVM),-kvm) $(if $(CPUS),-cpus $(CPUS)) -o out/bench-rxe.txt

.PHONY: release
release: $(BIN)/nfpm $(BIN)/cyclonedx-gomod ## binaries for amd64 and arm64, .deb, .rpm, lists of modules and checksums, in out/release
	@packaging/release

.PHONY: clean
clean: ## remove what make made
	@rm -rf bin out

$(BIN)/golangci-lint:
	@GOBIN=$(BIN) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
$(BIN)/gofumpt:
	@GOBIN=$(BIN) $(GO) install mvdan.cc/gofumpt@$(GOFUMPT_VERSION)
$(BIN)/benchstat:
	@GOBIN=$(BIN) $(GO) install golang.org/x/perf/cmd/benchstat@$(BENCHSTAT_VERSION)
$(BIN)/nfpm:
	@GOBIN=$(BIN) $(GO) install github.com/goreleaser/nfpm/v2/cmd/nfpm@$(NFPM_VERSION)
$(BIN)/cyclonedx-gomod:
	@GOBIN=$(BIN) $(GO) install github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@$(CYCLONEDX_VERSION)
