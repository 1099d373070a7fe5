package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	clover "github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sherman/layout"
)

// Params choose a variant of a scenario by the flags of rdmalab sim. The zero value is the scenario
// itself. Each scenario accepts some of the parameters. The tags are the names of the flags.
type Params struct {
	// Steer says which requests the switch steers for the store clover: write, read, both, or any,
	// with which the seed chooses one of these.
	Steer string `flag:"steer"`
	// ShareQP: true if the clients of a host share a queue pair to each memory server, in clover.
	ShareQP bool `flag:"share-qp"`
	// Threads is how many threads of clover's metadata server execute requests; 0 means that its
	// only thread does everything.
	Threads int `flag:"threads"`
	// Replicas is how many copies each node of clover has, on as many memory servers; 0 means one.
	Replicas int `flag:"replicas"`
	// Mix has the names of mixes of clover or sherman, separated by commas: variations of keys,
	// memory, links and faults. "none" means no mix, "" that the seed draws them.
	Mix string `flag:"mix"`
	// Program is the switch program in locks: forward, track, or swordbox, which replaces atomics
	// and is the default.
	Program string `flag:"program"`
	// Mode is published or hardened, which is the default. It is the mode of the switch's rules in
	// locks, buffer and lookup. In sherman it selects the layout of pages, in fusee how clients
	// decide conflicts, and in redn whether the NIC may read ahead in the programs' answers.
	Mode string `flag:"mode"`
	// Move: true if the switch in locks moves every request that can be moved, and does not replace
	// atomics.
	Move bool `flag:"move"`
	// Change makes an operator change the switch at random times, in the scenarios locks and
	// buffer. With the value rules, the operator sets hardened rules and, in locks, changes the
	// program; with modes, the operator also sets published rules.
	Change string `flag:"change"`
	// Torn: true if memory copies are torn in sherman, without other faults. With the published
	// layout this is always so.
	Torn bool `flag:"torn"`
	// Locks names the executor of the atomics on sherman's lock words: nic (the servers' NICs),
	// which is the default, or switch.
	Locks string `flag:"locks"`
	// Step is the name of one of the designs between FG+ (the baseline of Sherman's paper) and
	// Sherman, for the scenario sherman (sherman.Steps).
	Step string `flag:"step"`
	// Setup restricts the scenario planned to one of the small setups. Depth bounds the acts of a
	// schedule, and Schedules the number of schedules that run; 0 means the defaults. Plan is a
	// single schedule that runs instead.
	Setup     string `flag:"setup"`
	Depth     int    `flag:"depth"`
	Schedules int    `flag:"schedules"`
	Plan      string `flag:"plan"`
}

const (
	steerAny        = "any"
	programSwordBox = "swordbox"
	modeHardened    = "hardened"
	modePublished   = "published"
	locksNIC        = "nic"
	locksSwitch     = "switch"
)

// Choices lists the values of each parameter that takes a word.
var Choices = map[string][]string{
	"steer": {"write", "read", "both", steerAny}, "program": {modeForward, modeTrack, programSwordBox},
	"mode": {modePublished, modeHardened}, "locks": {locksNIC, locksSwitch},
	"change": {changeRules, changeModes}, "step": sherman.StepNames(),
}

// formerValues maps values of Mode that earlier versions used, and that are still accepted, to the
// present ones.
var formerValues = map[string]string{"hard": modeHardened, "sound": modeHardened, "paper": modePublished, "faithful": modePublished}

// args returns the parameters that are set, in the form of command-line flags.
func (p *Params) args() string {
	var out []string
	for _, f := range p.fields() {
		switch {
		case f.value != "":
			out = append(out, "--"+f.name+" "+f.value)
		case f.set:
			out = append(out, "--"+f.name)
		}
	}
	return strings.Join(out, " ")
}

// param is one parameter with its name and its value as text. The value of a bool, or of a parameter
// that is not set, is "".
type param struct {
	name, value string
	set         bool
}

func (p *Params) fields() (out []param) {
	v := reflect.ValueOf(p).Elem()
	for i := range v.NumField() {
		f := param{name: v.Type().Field(i).Tag.Get("flag"), set: !v.Field(i).IsZero()}
		if f.set && v.Field(i).Kind() != reflect.Bool {
			f.value = fmt.Sprint(v.Field(i))
		}
		out = append(out, f)
	}
	return out
}

// families has the scenarios with variants: the names of the parameters that each takes, and the
// function that makes the run of a variant.
var families = map[string]struct {
	takes []string
	run   func(Params) (func(*env) error, error)
}{
	"clover":  {[]string{"steer", "share-qp", "threads", "replicas", "mix"}, cloverVariant},
	"buffer":  {[]string{"mode", "change"}, bufferVariant},
	"lookup":  {[]string{"mode"}, lookupVariant},
	"planned": {[]string{"setup", "depth", "schedules", "plan"}, plannedVariant},
	"locks":   {[]string{"program", "mode", "move", "change"}, locksVariant},
	"fusee":   {[]string{"mode"}, byMode(func(e *env) error { return new(tablePlan).runPublished(e) }, func(e *env) error { return new(tablePlan).runWith(e, nil) })},
	"redn":    {[]string{"mode"}, byMode(func(e *env) error { return new(chainPlan).runPublished(e) }, func(e *env) error { return e.complete(new(chainPlan).draw(e).begin(e)) })},
	"sherman": {[]string{"mode", "torn", "locks", "step", "mix"}, treeVariant},
}

// byMode returns the run of a scenario whose only parameter is Mode.
func byMode(published, hardened func(*env) error) func(Params) (func(*env) error, error) {
	return func(p Params) (func(*env) error, error) {
		if p.Mode == modePublished {
			return published, nil
		}
		return hardened, nil
	}
}

func (s Scenario) Vary(p Params) (Scenario, error) {
	if p == (Params{}) {
		return s, nil
	}
	if now, ok := formerValues[p.Mode]; ok {
		p.Mode = now
	}
	family := families[s.Name]
	for _, f := range p.fields() {
		switch list := Choices[f.name]; {
		case f.set && !slices.Contains(family.takes, f.name):
			return s, fmt.Errorf("--%s is not for scenario %s", f.name, s.Name)
		case f.value != "" && list != nil && !slices.Contains(list, f.value):
			return s, fmt.Errorf("--%s %.40q: %suse %s", f.name, f.value, nearest.Meant(f.value, list), strings.Join(list, ", "))
		}
	}
	run, err := family.run(p)
	if err != nil {
		return s, err
	}
	s.Name, s.run = s.Name+" "+p.args(), run
	return s, nil
}

// cloverVariant returns the run of the store clover that p describes: with a switch that steers,
// shared queue pairs, several threads of the metadata server, copies of nodes, or mixes.
func cloverVariant(p Params) (func(*env) error, error) {
	if err := storeMixes.check(p.Mix); err != nil {
		return nil, err
	}
	if p.Threads < 0 || p.Threads > meta.MaxThreads {
		return nil, fmt.Errorf("--threads %d: use 0 to %d", p.Threads, meta.MaxThreads)
	}
	if p.Replicas < 0 || p.Replicas > clover.MaxBackups+1 {
		return nil, fmt.Errorf("--replicas %d: use 1 to %d", p.Replicas, clover.MaxBackups+1)
	}
	if p.Replicas > 1 && p.Steer != "" {
		return nil, errors.New("--replicas: the switch steers no requests of a store with copies")
	}
	if p.Steer == "" {
		return func(e *env) error {
			e.threads, e.replicas = p.Threads, p.Replicas
			if p.ShareQP {
				return new(storePlan).runShared(e, p.Mix)
			}
			return new(storePlan).runMixed(e, p.Mix, nil)
		}, nil
	}
	steer := p.Steer
	if steer == steerAny {
		steer = ""
	}
	return func(e *env) error {
		e.threads = p.Threads
		var change func(*storePlan)
		if p.ShareQP {
			change = func(plan *storePlan) { plan.share(e.draw) }
		}
		return new(storePlan).runSteered(e, steer, p.Mix, change)
	}, nil
}

// locksVariant returns the run of locks that p describes: with a switch program, a mode, or an
// operator.
func locksVariant(p Params) (func(*env) error, error) {
	program, mode := cmp.Or(p.Program, programSwordBox), cmp.Or(p.Mode, modeHardened)
	switch {
	case p.Change != "" && (p.Program != "" || p.Mode != "" || p.Move):
		return nil, errors.New("--change: not with --program, --mode or --move, which it draws itself")
	case p.Change != "":
		return func(e *env) error { return (&operator{modes: p.Change == changeModes}).watch(e) }, nil
	case program != programSwordBox && (p.Mode != "" || p.Move):
		return nil, fmt.Errorf("--program %s: --mode and --move are for %s", program, programSwordBox)
	case p.Move && mode == modePublished:
		return nil, fmt.Errorf("--move: only the %s program moves requests without replacing them", modeHardened)
	case program != programSwordBox:
		return runLocks(program), nil
	case p.Move:
		return runLocks(modeMove), nil
	case mode == modePublished:
		return func(e *env) error { return new(lockRun).runPublished(e) }, nil
	}
	return runLocks(recordedHardened), nil
}

// treeVariant returns the function that runs sherman: as a step between FG+ and Sherman, in the
// published layout, or with torn copies alone. Otherwise the run has the mixes of p, and the NICs
// or the switch execute the atomics on lock words.
func treeVariant(p Params) (func(*env) error, error) {
	torn := p.Torn || p.Mode == modePublished
	if err := treeMixes.check(p.Mix); err != nil {
		return nil, err
	}
	step, err := sherman.FindStep(p.Step)
	switch {
	case err != nil:
		return nil, err
	case p.Step != "" && (p.Mode != "" || p.Mix != "" || p.Locks != ""):
		return nil, errors.New("--step: not with --mode, --mix or --locks")
	case p.Step != "":
		return func(e *env) error { return new(treePlan).stepRun(e, step, p.Torn).run() }, nil
	case torn && p.Mix != "":
		return nil, errors.New("--mix: not with torn copies alone")
	case torn && p.Locks == locksSwitch:
		return nil, fmt.Errorf("--locks %s: not with torn copies", locksSwitch)
	case p.Mode == modePublished:
		return func(e *env) error { return new(treePlan).runPublished(e) }, nil
	case torn:
		return func(e *env) error { return new(treePlan).tornRun(e, layout.Hardened).run() }, nil
	}
	return func(e *env) error { return new(treePlan).runMixed(e, p.Mix, p.Locks == locksSwitch, nil) }, nil
}

// alias is the name that a variant had before variants became flags. It replays seeds that were
// recorded under this name.
type alias struct {
	name, of string
	params   Params
}

var aliases = []alias{
	{"clover-steer", "clover", Params{Steer: steerAny}},
	{"clover-steer-write", "clover", Params{Steer: "write"}},
	{"clover-steer-read", "clover", Params{Steer: "read"}},
	{"clover-steer-both", "clover", Params{Steer: "both"}},
	{"clover-threads", "clover", Params{Threads: 3}},
	{"clover-steer-threads", "clover", Params{Steer: steerAny, Threads: 3}},
	{"clover-replicas", "clover", Params{Replicas: 2}},
	{"clover-replicas-3", "clover", Params{Replicas: 3}},
	{"clover-shared", "clover", Params{ShareQP: true}},
	{"clover-steer-shared", "clover", Params{Steer: "both", ShareQP: true}},
	{"sherman-locks", "sherman", Params{Locks: locksSwitch}},
	{"sherman-faithful", "sherman", Params{Mode: modePublished}},
	{"sherman-torn", "sherman", Params{Torn: true}},
	{"locks-forward", "locks", Params{Program: modeForward}},
	{"locks-track", "locks", Params{Program: modeTrack}},
	{"locks-paper", "locks", Params{Mode: modePublished}},
	{"locks-move", "locks", Params{Move: true}},
	{"locks-change", "locks", Params{Change: changeRules}},
	{"locks-change-modes", "locks", Params{Change: changeModes}},
}

// Variants lists all scenarios, and those variants that had names of their own before variants became
// flags, by these names.
func Variants() []Scenario {
	out := All()
	for _, a := range aliases {
		i := slices.IndexFunc(out, func(s Scenario) bool { return s.Name == a.of })
		s, err := out[i].Vary(a.params)
		if err != nil {
			panic(err) // an entry of aliases is wrong
		}
		s.Name, s.Doc = a.name, "sim "+s.Name
		out = append(out, s)
	}
	return out
}
