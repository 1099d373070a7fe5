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

# COMPOSED is the compose file of a rack that is not the built-in one as it is; that one's is in the repository.
COMPOSED := $(if $(filter-out default,$(RACK))$(RACKFILE)$(PLUG),bin/compose.yaml)

# SUITES runs tests and prints a summary: the table of what there is, and how it is run, is in e2e/suites.
# It is one command, so that a variable before it is of its environment; suites builds it.
SUITES = GO=$(GO) out/suites -skips $(SKIPS) -expect '$(EXPECT)' -focus '$(FOCUS)'
# NOW says in a report when a part of it began.
NOW = echo "-- $(1), at $$(date -u +%H:%M:%S)"

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

.PHONY: suites
suites:
	@mkdir -p out && $(GO) build -o out/suites ./e2e/suites

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

.PHONY: test
test: build suites ## unit, simulation and e2e tests: whatever this machine can run
	@$(SUITES) -few $(FEW) -expect 'race detector|RDMA_CORE_SOURCE' test

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
SWEPT := transport uc ud srq locks state-store telemetry packet-trace buffer lookup balance netcache clover sherman fusee template bytekeys pdpm-direct pdpm-central nictable onerma kvcs redn redn-locks
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
soak: build suites ## long soaks on a rack (root), then seeds of all scenarios from FIRST on, and schedules of 3 acts, until SOAKTIME is over
	@mkdir -p out; date +%s >out/soak.began
	@$(MAKE) --no-print-directory mutate MUTANTS=5 SEED=$(FIRST) LEAST=40 MUTATED='softrnic/mem softrnic/cm'
	@end=$$(( $$(cat out/soak.began) + $$(echo $(SOAKTIME) | sed 's/m$$/*60/; s/s$$//; s/h$$/*3600/') )); first=$(FIRST); seeds=0; schedules=0; \
	$(SUITES) -focus 'arrive whole' long || exit 1; \
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
endure: build suites ## a rack at full load for LASTS, with faults and programs that misbehave and die: no connection is lost, nothing grows (root)
	@RDMALAB_ENDURE=$(LASTS) $(SUITES) endure

# MUTATED are the packages of mutate: the NIC, and the pure packages of the switch and the stores; behind = are those whose tests count. Those of the engine are also the conformance tests of the device. The tests of serve are mostly those of its parent and, for C programs, of uverbs; those of meta are of the store.
MUTATED ?= softrnic/wire softrnic/wire/mad softrnic/mem softrnic/transport softrnic/engine=softrnic/engine,softrnic/device softrnic/cm softrnic/ipc/serve=softrnic/ipc/serve,softrnic/ipc,softrnic/uverbs \
  swordbox/transform swordbox/atomiccache swordbox/conntrack swordbox/switchconn swordbox/requester=swordbox/requester,swordbox/serialize swordbox/serialize rackfile/rules \
  swordbox/journal swordbox/pipeline swordbox/cloversteer swordbox/staleflows swordbox/statestore swordbox/tracestore swordbox/packettrace swordbox/telemetry swordbox/extmem swordbox/framering swordbox/packetbuffer swordbox/lookuptable swordbox/netcache clover/layout clover/meta=clover/meta,clover clover/rpc \
  sherman/layout sherman/check sherman/lock fusee/layout fusee/snapshot softrnic/wire/onerma onerma/nic store/kv

.PHONY: mutate
mutate: ## what the tests notice: small changes of packages, one at a time; MUTANTS of each by SEED, MUTATED, LEAST in percent
	@$(GO) run ./e2e/mutate -n $(MUTANTS) -seed $(or $(SEED),1) -min $(or $(LEAST),0) $(MUTATED)

.PHONY: planted
planted: ## bugs of the stores that are written down (e2e/mutate/planted), each with what must notice it; PLANTED=part of a name
	@$(GO) run ./e2e/mutate -planted "$(or $(PLANTED),all)" -timeout 10m

.PHONY: race
race: suites ## the unit tests that run in virtual time, with the race detector
	@$(SUITES) race

.PHONY: unit
unit: suites ## unit tests alone; no privilege needed
	@$(SUITES) unit

.PHONY: e2e
e2e: build suites ## the suites on real racks (root); FOCUS=regexp picks specs
	@$(SUITES) e2e

.PHONY: e2e-cni
e2e-cni: build suites ## containers join a rack by the CNI plugin: with cnitool, and with podman if it is there (root)
	@$(SUITES) cni

# KUBE is what builds in the module kube, whose libraries of Kubernetes the product's own go.mod does not have.
KUBE := cd kube && CGO_ENABLED=0 $(GO) build -ldflags '$(LDFLAGS) -X github.com/rdmalab/rdmalab/kube/version.version=$(VERSION)'

.PHONY: kube
kube: ## build bin/rdmalab-kube and bin/rdmalab-kube-cni, for racks on Kubernetes, and kubectl's plugin bin/kubectl-rdmalab
	@$(KUBE) -o ../bin/ ./cmd/...

.PHONY: kube-image
kube-image: kube ## the image of kube/install.yaml, as the file out/kube.tar for ctr, docker or podman; no engine
	@mkdir -p out && bin/rdmalab-kube image -f out/kube.tar -plugin bin/rdmalab-kube-cni

# KUBE_INSTALL prints kube/install.yaml: the resources of kube/config/kustomization.yaml, one behind the other.
KUBE_INSTALL = echo "\# All of rdmalab for Kubernetes; made by make kube-install from kube/config." && \
  for f in namespace crd rbac operator agent; do echo "---" && cat kube/config/$$f.yaml || exit 1; done

.PHONY: kube-install
kube-install: ## write kube/install.yaml from kube/config
	@{ $(KUBE_INSTALL); } >kube/install.yaml

.PHONY: kube-chart
kube-chart: ## write the templates of the Helm chart from kube/config
	@sh kube/chart/templates.sh kube/config kube/chart/templates

.PHONY: kube-check
kube-check:
	@mkdir -p out && rm -rf out/chart && sh kube/chart/templates.sh kube/config out/chart && diff -r out/chart kube/chart/templates >/dev/null || \
	  { echo "kube/chart/templates is stale: run make kube-chart" >&2; exit 1; }
	@{ $(KUBE_INSTALL); } | cmp -s - kube/install.yaml || { echo "kube/install.yaml is stale: run make kube-install" >&2; exit 1; }

.PHONY: kube-test
kube-test: suites ## vet and test the module kube, all that needs no programs of Kubernetes
	@cd kube && $(GO) vet ./...
	@$(SUITES) kube

# RDMALAB_KUBE_CACHE has the programs of Kubernetes, and kwok; the first run builds them, which takes thirteen minutes of a processor.
.PHONY: e2e-kube
e2e-kube: kube suites ## racks on two real kubelets, and on 100 played nodes (root; etcd-server, containerd, runc, containernetworking-plugins, iptables, perftest)
	@$(KUBE) -o ../bin/ ./e2e/pause ./e2e/driver
	@$(subst kube/version.version=$(VERSION),kube/version.version=next,$(KUBE)) -o ../bin/next/ ./cmd/rdmalab-kube
	@bin=$$(kube/e2e/binaries.sh) && export RDMALAB_KUBE_BIN="$$bin" RDMALAB_KUBE_OUT=$(CURDIR)/bin && \
	  $(if $(FOCUS),cd kube && $(GO) test -count=1 -timeout 60m -v -run '$(FOCUS)' ./e2e/...,$(SUITES) kube-e2e)

.PHONY: e2e-machines
e2e-machines: build suites ## racks on several machines, which are namespaces with an sshd each (root; openssh-server, iproute2)
	@$(SUITES) machines

.PHONY: e2e-verbs
e2e-verbs: build suites ## the distribution's own RDMA programs, unmodified, on hosts of a rack (root; ibverbs-utils, rdmacm-utils, perftest)
	@$(SUITES) verbs

# APPS=short leaves out what takes long, and what CI does not install.
.PHONY: e2e-apps
e2e-apps: build suites ## RDMA programs of other packages in all ways (root; apt packages of e2e/apps); APPS=short, WRITE=yes writes the results into docs/reference/programs.md
	@RDMALAB_APPS=$(APPS) RDMALAB_WRITE=$(WRITE) $(SUITES) apps

.PHONY: e2e-docker
e2e-docker: build suites ## the suites on racks whose hosts are containers (root, docker); PLUG=outside, holder or driver
	@RDMALAB_E2E_RUNTIME=docker$(if $(PLUG),:$(PLUG)) $(SUITES) docker

.PHONY: e2e-web
e2e-web: build suites ## the page of rdmalab web in a headless Chromium, on a rack (root, apt package chromium); pictures go to out/web
	@$(SUITES) web

.PHONY: pictures
pictures: docs e2e-web ## the pictures of the pages: those that commands draw, and the page of rdmalab web (root, apt package chromium)
	@cp out/web/page-1280-light.png docs/pictures/web.png

.PHONY: arm64
arm64: ## the unit tests of what knows no processor, and of the library for programs, for arm64 under user emulation (apt package qemu-user-static)
	@GOARCH=arm64 CGO_ENABLED=0 $(GO) test -count=1 -timeout 60m -exec qemu-aarch64-static $(or $(ARM64),$(shell $(GO) list ./softrnic/wire/... ./softrnic/mem ./softrnic/cm ./softrnic/cq ./softrnic/fault ./softrnic/transport ./softrnic/engine ./softrnic/capture/conform ./softrnic/capture/flows ./softrnic/capture/pcapng ./softrnic/uverbs/preload ./rackfile/... ./units ./swordbox/transform ./swordbox/conntrack ./clover/layout ./sherman/layout ./fusee/layout ./plot/...))

.PHONY: interop
interop: build suites ## our NIC and the one of a Linux kernel in a virtual machine (root, QEMU, apt); writes e2e/interop/MATRIX.md
	@$(SUITES) interop

# THROUGH are the runs of `make transparency`: what the switch does, and the suite.
THROUGH := track:transport track:interop move:transport move:interop

.PHONY: transparency
transparency: build suites ## the suites transport and interop again, through a switch that tracks and through one that moves requests
	@$(SUITES) -runs '$(THROUGH)' transparency

# SINGLE are the runs of `make singleframes`: what the switch does, "" or as in THROUGH, and the suite.
SINGLE := :transport :switch track:transport move:transport

.PHONY: singleframes
singleframes: build suites ## the suites transport and switch again, without super-frames: gso: off on all hosts
	@$(SUITES) -runs '$(SINGLE)' singleframes

# MEMORY are the runs of `make memorylinks`: what the switch does, "" or as in THROUGH, and the suite.
MEMORY := :transport :switch move:transport

.PHONY: memorylinks
memorylinks: build suites ## the suites transport and switch again, over memory links: cable: memory in all rack files
	@$(SUITES) -runs '$(MEMORY)' memorylinks

# COMPACT are the runs of `make compact`: what the switch does, "" or as in THROUGH, and the suite.
COMPACT := :transport :switch :chaos :verbs :apps move:transport

.PHONY: compact
compact: build suites ## the suites transport, switch, chaos, verbs and apps again, on compact racks: daemons: shared in all rack files
	@$(SUITES) -runs '$(COMPACT)' compact

# FABRIC are the runs of `make fabric`: what the switches do, "" or as in THROUGH, and the suite.
FABRIC := :transport move:transport :chaos :clover :sherman :fusee :kvcs :nictable

.PHONY: fabric
fabric: build suites ## the suites transport, chaos and those of the stores again, over two leaves and two spines: key fabric in all rack files
	@$(SUITES) -runs '$(FABRIC)' fabric

.PHONY: trunk
trunk: build suites ## the suites of make fabric over two leaves whose trunk goes by UDP, as between machines: key carrier in all rack files
	@$(SUITES) -runs '$(FABRIC)' trunk

.PHONY: coverage
coverage: ## queue pair state × opcode × fault: what the tests have seen, as a table; fails on a gap
	@mkdir -p out && rm -f out/coverage.txt
	@RDMALAB_COVERAGE=$(CURDIR)/out/coverage.txt $(GO) test -tags qpcover -count=1 -timeout 60m -skip 'Alloc|LargestRead|SimCalibrate|InVirtualTime' \
	  ./softrnic/transport ./softrnic/engine ./sim/simrack ./sim/scenario >out/coverage.log || { cat out/coverage.log; exit 1; }
	@$(GO) run ./e2e/coverage out/coverage.txt

.PHONY: sim
sim: build ## the transport scenario over SEEDS seeds in virtual time; SEED=n replays one
	@bin/rdmalab sim transport $(if $(SEED),--seed $(SEED),--seeds $(SEEDS))

# KUBE=no leaves the module kube out of make check: to build it without a cache takes as long as all else.
.PHONY: check
check: fmt-check lint $(if $(filter no,$(KUBE)),,kube-check kube-test) ## what must hold before a commit: format, vet, lint, tidy modules, layering, generated documents
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
	@$(AGAIN) bench-rack ONLY='^(compact-)?verbs/'

.PHONY: default.pgo
default.pgo: build ## profiles of a rack at work, by which the compiler optimizes the binary (root); commit the file
	@mkdir -p out && $(GO) build -o out/benchrack ./e2e/benchrack && out/benchrack -guide cmd/rdmalab/default.pgo

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
