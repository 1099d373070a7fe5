package rules

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/rdmalab/rdmalab/nearest"
)

// MaxText bounds the text of a rule, in bytes.
const MaxText = 1024

// Start returns a rule for reading from text. Its fields have the defaults that differ from the
// zero value.
func Start() Rule { return Rule{Service: unset} }

// meantKeys are words of other files for keys of rules.
var meantKeys = map[string]string{
	"host": "server", "to": "server", "dst": "server", "target": "server", "do": "action", "type": "action", "kind": "action", "name": "id", "port": "service",
	"addr": "range", "address": "range", "memory": "range", "key": "rkey", "qps": "shards", "connections": "shards",
}

// unset marks a service that the text has not named so far. Finish replaces it.
const unset = "\x00"

// Finish completes a rule whose keys were read one by one: it fills in the default service. seen
// reports whether a key was read. The error names a required key that is missing.
func (r *Rule) Finish(seen func(key string) bool) error {
	for _, key := range []string{"server", "action"} {
		if !seen(key) {
			return fmt.Errorf("the key %q is missing; write %s=%s", key, key, fields[index(key)].Example)
		}
	}
	if r.Service == unset {
		r.Service = ""
		if r.Dials() {
			r.Service = DefaultService
		}
	}
	return nil
}

// Parse reads words key=value, separated by blanks. The result has a Server, or a Host, which the
// caller must resolve.
func Parse(text string) (Rule, error) {
	if len(text) > MaxText {
		return Rule{}, fmt.Errorf("the rule has %d bytes; at most %d are allowed", len(text), MaxText)
	}
	r := Start()
	seen := make(map[string]bool)
	for _, w := range strings.Fields(text) {
		key, value, ok := strings.Cut(w, "=")
		i := index(key)
		switch {
		case !ok:
			return Rule{}, fmt.Errorf("%.60q is no key=value; write it like server=ms0 action=atomics", w)
		case i < 0:
			return Rule{}, fmt.Errorf("unknown key %.40q; %sknown keys: %s", key, nearest.Meant(key, Keys(), meantKeys), strings.Join(Keys(), ", "))
		case seen[key]:
			return Rule{}, fmt.Errorf("key %s is given twice; remove one", key)
		}
		seen[key] = true
		if err := fields[i].Set(&r, value); err != nil {
			return Rule{}, fmt.Errorf("%s: %w", key, err)
		}
	}
	if len(seen) == 0 {
		return Rule{}, errors.New("the rule is empty; write it like server=ms0 action=atomics")
	}
	return r, r.Finish(func(key string) bool { return seen[key] })
}

func Keys() []string {
	keys := make([]string, len(fields))
	for i := range fields {
		keys[i] = fields[i].Key
	}
	return keys
}

func index(key string) int {
	return slices.IndexFunc(fields, func(f Field) bool { return f.Key == key })
}

// String prints the rule in the form that Parse reads. It leaves out keys with their default.
func (r Rule) String() string {
	return r.join("=", " ", func(s string) string { return s })
}

// YAML prints the rule in one line, as a mapping of a rack file.
func (r Rule) YAML() string { return "{" + r.join(": ", ", ", quote) + "}" }

func (r *Rule) join(is, and string, value func(string) string) string {
	var words []string
	for _, f := range fields {
		if v := f.Get(r); v != "" {
			words = append(words, f.Key+is+value(v))
		}
	}
	return strings.Join(words, and)
}

// plain are the characters without a special meaning in YAML.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"

// quote quotes a value that the reader of rack files would not read as the same text.
func quote(s string) string {
	if strings.Trim(s, plain) == "" && s[0] != '-' && s[0] != '.' && !strings.EqualFold(s, "null") {
		return s
	}
	return strconv.Quote(s)
}

// NoHostError means that the value of a key of a rule, or a part of the value, names no host of the rack.
type NoHostError struct{ Key, Name string }

func (e *NoHostError) Error() string {
	return fmt.Sprintf("%s %.60q is no host of this rack", e.Key, e.Name)
}

// ListHosts adds the hosts of the rack, and the one that is meant, to a *NoHostError. Other errors stay.
func ListHosts(err error, hosts []string) error {
	var no *NoHostError
	if errors.As(err, &no) {
		return fmt.Errorf("%w; %shosts: %v", err, nearest.Meant(no.Name, hosts), hosts)
	}
	return err
}

// Resolve sets Server and Also to all addresses of the server that Host or Server names. lookup
// returns these addresses; the first one is the one to connect to. Resolve also replaces the names
// of hosts in Options by addresses (Definition.Hosts). The error for a name of no host is a *NoHostError.
func (r *Rule) Resolve(lookup func(name string) []netip.Addr) error {
	addrs := lookup(cmp.Or(r.Host, r.Server.String()))
	switch {
	case len(addrs) > 0:
		r.Server, r.Also = addrs[0], slices.Clone(addrs[1:])
	case r.Host != "":
		return &NoHostError{Key: "server", Name: r.Host}
	}
	for _, key := range r.Action.Definition().Hosts {
		if r.Options[key] == "" {
			continue
		}
		words := strings.Split(r.Options[key], ",")
		for i, w := range words {
			if addrs := lookup(w); len(addrs) > 0 {
				words[i] = addrs[0].String()
			} else if _, err := netip.ParseAddr(w); err != nil {
				return &NoHostError{Key: key, Name: w}
			}
		}
		r.Options = maps.Clone(r.Options)
		r.Options[key] = strings.Join(words, ",")
	}
	return nil
}
