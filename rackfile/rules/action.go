package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Action says what the switch does with the requests that a rule selects. Definition describes it.
type Action uint8

// Actions that this package defines. The zero value is Track. Packages of handlers add more actions
// with Register.
const (
	// Track tracks the connections and changes nothing.
	Track Action = iota
	// Move sends single-packet one-sided requests on a shared connection: WRITE_ONLY without
	// immediate data, READ of at most one MTU, CMP_SWAP, FETCH_ADD.
	Move
	// Atomics sends the atomics on a word, and the WRITEs that cover the word, on one shared
	// connection. As soon as the switch knows the value of the word, it replaces CMP_SWAP and
	// FETCH_ADD by WRITEs.
	Atomics
	// Steer sends appends and READs of the store Clover to the newest node of their key, on the
	// client's connection.
	Steer
)

// Definition describes an action: its word in rules, the keys of its rules, and what the switch
// does and checks for them.
type Definition struct {
	// Name is the word in rule files. Doc is one line for people: what the switch does.
	Name, Doc string
	// Service is what the switch does for a server under rules of the action. All rules of a server
	// whose actions have a Service must have the same one, and the same mode. "" means that the
	// action has no Service, so that its rules need not agree with others in this way.
	Service Service
	// Observes is true if a rule of the action does not change what happens to a request. So a
	// request may match an observing rule and another rule. A set checks only whether observing
	// rules are in conflict with one another.
	Observes bool
	// Queues is true if a rule of the action is not about requests, but about all frames, of any
	// protocol, that leave to the server or come from it. A set checks only whether such a rule is
	// in conflict with other rules of the same action.
	Queues bool
	// Check returns what is wrong with one rule of the action. A nil Check checks nothing.
	Check func(r *Rule) error
	// Dials reports whether the switch makes connections for rule r of the action. A nil Dials
	// means that it makes none.
	Dials func(r *Rule) bool
	// Hosts names the Keys whose values are lists of hosts, separated by commas. Rule.Resolve
	// replaces the names of hosts by addresses.
	Hosts []string
	// Keys are the keys that only rules of this action have. See Option. Shares names keys of actions
	// that were registered before, or were offered (Offer), which rules of this action have, too.
	Keys   []Field
	Shares []string
	// Together checks all rules of a rule set that have this action against each other. The error
	// says what is wrong. A nil Together checks nothing.
	Together func(list []*Rule) error
	// Memory returns the memory of servers in which the switch keeps state of rule r. A nil Memory
	// means that it keeps none there. The memory of rules of different actions must not overlap.
	Memory func(r *Rule) Memory
}

// Service is a way in which the switch serves a server. Error messages use its text as a
// participle.
type Service string

// Services of the actions that this package defines.
const (
	serialized Service = "served"
	steered    Service = "steered"
)

// definitions holds the definition of each action, by its number. Register appends to it while
// packages are initialised; after that it does not change.
var definitions = []Definition{
	{Name: "track", Doc: "follows connections (`rdmalab switch connections`) and changes nothing"},
	{Name: "move", Doc: "sends one-sided requests whose data fit into one packet on a shared connection; in mode hardened, the first requests of a client's connection, " +
		"and those under an R_Key with which no request has succeeded at these addresses, stay on the client's connection", Service: serialized, Dials: (*Rule).hardened, Keys: []Field{slowField}},
	{Name: "atomics", Dials: (*Rule).hardened, Doc: "sends the atomics on a word on a shared connection, and single-packet WRITEs that overlap this word and no other word that has had atomics (in mode published, the same requests as move); when it knows the word's " +
		"value, it replaces CMP_SWAP and FETCH_ADD by WRITE; in mode hardened, the first requests stay on the client's connection, as with move", Service: serialized, Keys: []Field{slowField}},
	{
		Name: "steer", Doc: "sends appends and READs of the store Clover to the newest node of their key", Service: steered,
		Dials: func(r *Rule) bool { return r.Mode == Published },
	},
}

func (r *Rule) hardened() bool { return r.Mode == Hardened }

// Register adds an action. The package of the handler that carries out the action calls it while
// packages are initialised. A program that links the handler's package can then read rules of the
// action. Register panics if the name or a key exists already, or a shared key does not exist.
func Register(d Definition) Action {
	if slices.Contains(Actions(), d.Name) || len(definitions) == 1<<8 {
		panic("rules: there is no room for the action " + d.Name)
	}
	keys := d.Keys
	d.Keys = nil
	for _, key := range d.Shares {
		d.Keys = append(d.Keys, fields[index(key)])
	}
	definitions = append(definitions, d)
	a := Action(len(definitions) - 1)
	Extend(a, Definition{Keys: keys})
	return a
}

// Offer adds keys that several actions may have: those whose Definition names them in Shares. It panics
// if a key exists already. Packages call it while they are initialised, before the actions.
func Offer(keys ...Field) {
	for _, k := range keys {
		if index(k.Key) >= 0 {
			panic("rules: the key " + k.Key + " exists")
		}
	}
	fields = append(fields, keys...)
}

// Extend adds the keys, also shared ones, the hosts and the checks of d to an action that another package has
// registered, and sets its Dials and its Memory if d has them. It panics if a key exists already. The
// package of a second handler of the action calls it while packages are initialised.
func Extend(a Action, d Definition) {
	to := &definitions[a]
	for _, k := range d.Keys {
		if index(k.Key) >= 0 {
			panic("rules: action " + to.Name + " has the key " + k.Key + ", which exists")
		}
	}
	to.Keys = append(to.Keys, d.Keys...)
	for _, key := range d.Shares {
		to.Keys = append(to.Keys, fields[index(key)])
	}
	to.Hosts = append(to.Hosts, d.Hosts...)
	fields = append(fields, d.Keys...)
	if d.Dials != nil {
		to.Dials = d.Dials
	}
	if d.Memory != nil {
		to.Memory = d.Memory
	}
	to.Check, to.Together = both(to.Check, d.Check), both(to.Together, d.Together)
}

// both returns a check that makes two checks one after the other. An argument of nil is no check.
func both[T any](one, other func(T) error) func(T) error {
	switch {
	case one == nil:
		return other
	case other == nil:
		return one
	}
	return func(v T) error {
		if err := one(v); err != nil {
			return err
		}
		return other(v)
	}
}

// Definitions lists all actions.
func Definitions() []Definition { return slices.Clone(definitions) }

// Actions lists the names of all actions.
func Actions() []string {
	names := make([]string, len(definitions))
	for i := range definitions {
		names[i] = definitions[i].Name
	}
	return names
}

// actionDoc returns the names of the actions as text: "track, move or steer".
func actionDoc() string {
	names := Actions()
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// Definition returns the definition of the action. For an unknown action it returns that of Track.
func (a Action) Definition() *Definition {
	if int(a) >= len(definitions) {
		a = Track
	}
	return &definitions[a]
}

func (a Action) String() string { return word(Actions(), uint8(a)) }

func (a Action) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

func (a *Action) UnmarshalText(b []byte) error { return readWord(a, "action", Actions(), b) }

// Option returns the Field of a key that only rules of one action have. The value is kept as text
// in Rule.Options. check returns an error if a value is wrong.
func Option(key, example, doc string, check func(value string) error) Field {
	return Field{
		Key: key, Example: example, Doc: doc,
		Set: func(r *Rule, text string) error {
			if err := check(text); err != nil {
				return err
			}
			if r.Options == nil {
				r.Options = make(map[string]string)
			}
			r.Options[key] = text
			return nil
		},
		Get: func(r *Rule) string { return r.Options[key] },
	}
}

// validate returns what is wrong with a rule of the action.
func (d *Definition) validate(r *Rule) error {
	for _, key := range slices.Sorted(maps.Keys(r.Options)) { // also for a rule that was read from JSON
		i := slices.IndexFunc(d.Keys, func(k Field) bool { return k.Key == key })
		if i < 0 {
			return fmt.Errorf("the key %.40s has no meaning with action %s", key, d.Name)
		}
		if err := d.Keys[i].Set(&Rule{}, r.Options[key]); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	if d.Check != nil {
		return d.Check(r)
	}
	return nil
}

// together calls Together of each action with the rules of the set that have this action.
func (s *Set) together() error {
	for a := range definitions {
		check := definitions[a].Together
		if check == nil {
			continue
		}
		var list []*Rule
		for i := range s.rules {
			if r := &s.rules[i]; int(r.Action) == a {
				list = append(list, r)
			}
		}
		if err := check(list); err != nil {
			return err
		}
	}
	return nil
}
