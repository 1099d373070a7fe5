package rackfile

import (
	"bytes"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/rdmalab/rdmalab/rackfile/rules"
)

func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("rack.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("rack.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// refuses reports whether an editor shows a mistake in the file: it is no YAML, or the schema refuses it.
func refuses(s *jsonschema.Schema, text string) error {
	var v any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		return err
	}
	return s.Validate(plainValue(v))
}

// plainValue converts what the YAML library returns to the types that the validator knows.
func plainValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = plainValue(v[k])
		}
	case []any:
		for i := range v {
			v[i] = plainValue(v[i])
		}
	}
	return v
}

// The schema accepts files that the parser accepts.
func TestSchemaAcceptsGoodFiles(t *testing.T) {
	s := compiled(t)
	for _, text := range []string{
		small, full, withRules("{id: locks, server: ms0, action: atomics, range: 0x1000-0x2000, shards: 2, rkey: 0x7, mode: published}"),
		"name: a\nhosts: [{name: \"r[0-1]-cn[00-15]\", role: compute, memory: 64M, spin: 1m30s, cpu: auto}]\n",
		"hosts: [{name: a, role: compute, memory: 4096, quota: {memory: 1.5GiB}}]\nfaults: [{link: a, kind: rate, bitsPerSecond: 10G}, {link: a, kind: loss, probability: 0.5%}, {link: a, kind: loss, probability: 1e-3}]\n",
		"group: 1000\nonerma: {}\nsubnet6: fd00::/64\nhosts: [{name: a, role: compute, spin: 0}]\n",
	} {
		if _, err := Parse([]byte(text)); err != nil && !strings.Contains(err.Error(), "too long") {
			t.Errorf("the parser refuses\n%s\n%v", text, err)
		}
		if err := refuses(s, text); err != nil {
			t.Errorf("the schema refuses\n%s\n%v", text, err)
		}
	}
}

// beyond matches the parser's errors about mistakes that no schema can name: they concern several keys,
// the meaning of a value, or how the file is written. Each is used.
var beyond = []string{
	"host bits set", "is not for hosts", "is too small", "too long", "an anchor or alias", "is a tag",
	"too short: a WRITE waits", "is in the list already", "is taken already", "counts down", "different width", "more than 256|more than 1024", "is no multiple|is too much",
	"is no host", "bitsPerSecond$|fault rule", "opcode: ", "cuts a word", "before it takes", "its id is taken", "is no range; write it like 0x", "is no number from 1 to 64",
	"use a time from", "use a value from", "must be above", "is above", "exclude each other", "needs the key slow", "daemons: (packets|1RMA)",
}

// The schema refuses each bad file that the parser refuses, unless no schema can.
func TestSchemaRefusesBadFiles(t *testing.T) {
	s := compiled(t)
	type bad struct{ text, want string }
	var list []bad
	for _, c := range mistakes {
		list = append(list, bad{strings.Replace(small, c.old, c.new, 1), c.want})
	}
	for _, c := range faultMistakes {
		list = append(list, bad{small + "faults:\n  - " + c.fault + "\n", c.want})
	}
	for _, c := range ruleMistakes {
		list = append(list, bad{withRules(c.rule), c.want})
	}
	used, both := make([]bool, len(beyond)), 0
	for _, c := range list {
		if refuses(s, c.text) != nil {
			both++
			continue
		}
		_, err := Parse([]byte(c.text))
		i := slices.IndexFunc(beyond, func(p string) bool { return regexp.MustCompile(p).MatchString(c.want) })
		if i < 0 {
			t.Errorf("the schema accepts what the parser refuses (%v):\n%s", err, c.text)
			continue
		}
		used[i] = true
	}
	for i, p := range beyond {
		if !used[i] {
			t.Errorf("%q is no longer beyond the schema: leave it out", p)
		}
	}
	if both < 70 {
		t.Errorf("%d of %d bad files are refused by both", both, len(list))
	}
}

// The parser and the schema know the same keys.
func TestSchemaHasEveryKey(t *testing.T) {
	d := described{}
	at := func(keys []key) (names []string) {
		for _, k := range keys {
			names = append(names, k.name)
		}
		return names
	}
	nested := func(keys []key, name string) []string {
		for _, k := range keys {
			if k.name == name {
				s := k.shape
				if item, ok := s["items"].(shape); ok {
					s = item
				}
				var names []string
				for key := range s["properties"].(shape) {
					names = append(names, key)
				}
				return names
			}
		}
		t.Fatalf("no key %s", name)
		return nil
	}
	top := schemaKeys(d)
	var sw []string
	for _, k := range top {
		if k.name == "switch" {
			sw = nested(top, "switch")
		}
	}
	for _, c := range []struct {
		section, file string
		have          []string
	}{
		{"rack", "zzz: 1\n", at(top)},
		{"switch", "switch: {zzz: 1}\nhosts: [{name: a, role: memory}]\n", sw},
		{"onerma", "onerma: {zzz: 1}\nhosts: [{name: a, role: memory}]\n", nested(top, "onerma")},
		{"rules", "switch: {rules: [{zzz: 1}]}\nhosts: [{name: a, role: memory}]\n", rules.Keys()},
		{"hosts", "hosts: [{zzz: 1}]\n", at(hostKeys(d))},
		{"quota", "hosts: [{name: a, role: memory, quota: {zzz: 1}}]\n", at(quotaKeys())},
		{"faults", "faults: [{zzz: 1}]\nhosts: [{name: a, role: memory}]\n", at(faultKeys(d))},
		{"match", "faults: [{link: a, kind: loss, match: {zzz: 1}}]\nhosts: [{name: a, role: memory}]\n", nested(faultKeys(d), "match")},
	} {
		_, err := Parse([]byte(c.file))
		var all Errors
		if !errors.As(err, &all) {
			t.Fatalf("%s: %v", c.section, err)
		}
		_, list, _ := strings.Cut(all[0].Msg, "known keys: ")
		known := strings.Split(list, ", ")
		slices.Sort(known)
		slices.Sort(c.have)
		if !slices.Equal(known, c.have) {
			t.Errorf("%s: the parser knows %v, the schema %v", c.section, known, c.have)
		}
	}
	undescribed(t, "rack", schemaKeys(descriptions()))
}

// undescribed reports scalars without a description.
func undescribed(t *testing.T, section string, keys []key) {
	t.Helper()
	d := descriptions()
	for _, k := range keys {
		s := k.shape
		if item, ok := s["items"].(shape); ok && item["properties"] != nil {
			s = item
		}
		inner, ok := s["properties"].(shape)
		if !ok {
			if len(d[section][k.name]) < 4 {
				t.Errorf("%s of %s has no description", k.name, section)
			}
			continue
		}
		for name, v := range inner {
			if one := v.(shape); one["properties"] == nil && one["items"] == nil && one["description"] == nil {
				t.Errorf("%s of %s has no description in the schema", name, k.name)
			}
		}
	}
}
