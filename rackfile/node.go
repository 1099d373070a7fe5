package rackfile

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/units"
)

// decoder walks through the syntax tree of a YAML file and collects mistakes.
type decoder struct {
	file string
	errs Errors
	// mistakes counts all mistakes, also those that errs does not have because of maxErrors.
	mistakes int
	size     bounds
}

func (d *decoder) sound(f func()) bool {
	before := d.mistakes
	f()
	return d.mistakes == before
}

// errorf adds a mistake at n to errs, unless errs has maxErrors already.
func (d *decoder) errorf(n ast.Node, format string, args ...any) {
	if d.mistakes++; d.mistakes > maxErrors {
		return
	}
	e := &Error{File: d.file, Msg: fmt.Sprintf(format, args...)}
	if p := position(n); p != nil {
		e.Line, e.Col = p.Line, p.Column
	}
	d.errs = append(d.errs, e)
}

// position returns the place at which n begins. For a block mapping or sequence, this is the place
// of its first element, because the token of such a node is at another place.
func position(n ast.Node) *token.Position {
	switch n := n.(type) {
	case nil:
		return nil
	case *ast.MappingNode:
		if len(n.Values) > 0 && !n.IsFlowStyle {
			return position(n.Values[0])
		}
	case *ast.MappingValueNode:
		return position(n.Key)
	case *ast.SequenceNode:
		if len(n.Values) > 0 && !n.IsFlowStyle {
			return position(n.Values[0])
		}
	}
	if t := n.GetToken(); t != nil {
		return t.Position
	}
	return nil
}

func kindOf(n ast.Node) string {
	switch n.(type) {
	case nil, *ast.NullNode:
		return "nothing"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode, *ast.LiteralNode:
		return "a text"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "a number"
	case *ast.BoolNode:
		return "true or false"
	case *ast.AliasNode, *ast.AnchorNode, *ast.MergeKeyNode:
		return "an anchor or alias, which rack files do not have"
	case *ast.TagNode:
		return "a tag, which rack files do not have"
	}
	return "something else"
}

// entry is a key that a mapping may have. set reads the key's value.
type entry struct {
	key      string
	required bool
	set      func(n ast.Node)
}

// mapping calls the set of the matching entry for each key of n. It reports unknown, repeated and
// missing keys. `what` names the mapping in errors.
func (d *decoder) mapping(n ast.Node, what string, entries []entry) {
	m, ok := n.(ast.MapNode)
	if !ok {
		d.errorf(n, "%s must be a mapping, but is %s", what, kindOf(n))
		return
	}
	seen, meant := make(map[string]bool), make(map[string]bool)
	for it := m.MapRange(); it.Next(); {
		kv := it.KeyValue()
		key, ok := scalar(kv.Key)
		if !ok {
			d.errorf(kv, "key of %s must be a plain word, but is %s", what, kindOf(kv.Key))
			continue
		}
		i := slices.IndexFunc(entries, func(e entry) bool { return e.key == key })
		switch {
		case i < 0:
			meant[nearest.Word(key, keys(entries), meantKeys)] = true // so that one mistake is reported once
			d.errorf(kv, "unknown key %.40q in %s; %sknown keys: %s", key, what, nearest.Meant(key, keys(entries), meantKeys), strings.Join(keys(entries), ", "))
		case seen[key]:
			d.errorf(kv, "key %q is given twice in %s; remove one", key, what)
		case kindOf(kv.Value) == "nothing":
			d.errorf(kv, "key %q has no value; give it one or remove it", key)
		default:
			entries[i].set(kv.Value)
		}
		seen[key] = true
	}
	for _, e := range entries {
		if e.required && !seen[e.key] && !meant[e.key] {
			d.errorf(n, "%s lacks the key %q", what, e.key)
		}
	}
}

func keys(entries []entry) []string {
	list := make([]string, len(entries))
	for i, e := range entries {
		list[i] = e.key
	}
	return list
}

// sequence calls f for each element of n. `what` names the list in errors.
func (d *decoder) sequence(n ast.Node, what string, f func(n ast.Node)) {
	s, ok := n.(*ast.SequenceNode)
	if !ok {
		d.errorf(n, "%s must be a list, but is %s", what, kindOf(n))
		return
	}
	for _, v := range s.Values {
		f(v)
	}
}

// scalar returns the text of a scalar node as it was written, or false if n is no scalar.
func scalar(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		if n.Value == nil {
			return "", false
		}
		return n.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	return "", false
}

// text parses the scalar n. If n is no scalar or parse returns an error, text reports the mistake
// at n and returns false. key names the value in errors.
func text[T any](d *decoder, n ast.Node, key string, parse func(s string) (T, error)) (v T, ok bool) {
	s, isScalar := scalar(n)
	if !isScalar {
		d.errorf(n, "%s must be a single value, but is %s", key, kindOf(n))
		return v, false
	}
	v, err := parse(s)
	if err != nil {
		d.errorf(n, "%s: %v", key, err)
		return v, false
	}
	return v, true
}

// set returns an entry that parses the value of key and stores it in dst.
func set[T any](d *decoder, key string, dst *T, parse func(s string) (T, error)) entry {
	return entry{key: key, set: func(n ast.Node) {
		if v, ok := text(d, n, key, parse); ok {
			*dst = v
		}
	}}
}

// pointer returns an entry that parses the value of key and stores a pointer to it in dst.
func pointer[T any](d *decoder, key string, dst **T, parse func(s string) (T, error)) entry {
	return entry{key: key, set: func(n ast.Node) {
		if v, ok := text(d, n, key, parse); ok {
			*dst = &v
		}
	}}
}

// section returns an entry of a key whose value is a mapping with the given entries.
func (d *decoder) section(key string, entries ...entry) entry {
	return entry{key: key, set: func(n ast.Node) { d.mapping(n, key, entries) }}
}

// list returns an entry of a key whose value is a list of up to `most` elements. The function
// `read` reads an element.
func list[T any](d *decoder, key string, dst *[]T, most int, read func(n ast.Node) T) entry {
	return entry{key: key, set: func(n ast.Node) {
		d.sequence(n, key, func(n ast.Node) {
			if len(*dst) == most {
				d.errorf(n, "more than %d %s; remove some", most, key)
			} else {
				*dst = append(*dst, read(n))
			}
		})
	}}
}

func required(e entry) entry {
	e.required = true
	return e
}

// integer returns a parser of whole numbers from low to high.
func integer(low, high int64) func(s string) (int64, error) {
	return func(s string) (int64, error) {
		n, err := strconv.ParseInt(s, 0, 64)
		if err != nil {
			return 0, fmt.Errorf("%q is no whole number", s)
		}
		if n < low || n > high {
			return 0, fmt.Errorf("%d is out of bounds; use a number from %d to %d", n, low, high)
		}
		return n, nil
	}
}

// number does what integer does, with results of type int.
func number(low, high int) func(s string) (int, error) {
	parse := integer(int64(low), int64(high))
	return func(s string) (int, error) {
		n, err := parse(s)
		return int(n), err
	}
}

func parseSeed(s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is no seed; use a whole number from 0 to %d", s, uint64(math.MaxUint64))
	}
	return n, nil
}

func parseBool(s string) (bool, error) {
	if s != "true" && s != "false" {
		return false, fmt.Errorf("%q is neither true nor false", s)
	}
	return s == "true", nil
}

func parseSpin(s string) (time.Duration, error) {
	d, err := units.ParseDuration(s)
	if err == nil && d > maxSpin {
		return 0, fmt.Errorf("%s is too long; use at most %v", s, maxSpin)
	}
	return d, err
}

// word returns a parser that accepts each of the words and nothing else.
func word[T ~string](words ...T) func(s string) (T, error) {
	return func(s string) (T, error) {
		if !slices.Contains(words, T(s)) {
			return "", fmt.Errorf("%.40q is unknown; %suse one of %v", s, nearest.Meant(s, words, meantWords, fault.OtherWords), words)
		}
		return T(s), nil
	}
}
