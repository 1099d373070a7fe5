package rackfile

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/cost"
)

// fullCost has every key of a cost file.
const fullCost = `
name: full
link: {rate: 25Gbit, delay: 125ns, overhead: 24}
switch:
  delay: 450ns
  cores: 24
  forward: 3M
  rewrite: 2.8M
client: {post: 30ns, poll: 20ns}
nic:
  doorbell: 700ns
  completion: 460ns
  send: {total: 4G, qp: {host: 1, device: 0}, latency: {host: 1us, device: 2us}}
  write: {total: 63M}
  read: {total: 65M}
  atomic:
    total: 500k
    qp: {device: 9M}
    word: {host: 3M, device: 1234}
    slots: 4KiB
`

func TestParseCost(t *testing.T) {
	got, err := ParseCost("full.yaml", []byte(fullCost), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := cost.Model{
		Name: "full", Link: cost.Link{Rate: 25e9, Delay: 125, Overhead: 24},
		Switch: cost.Switch{Delay: 450, Cores: 24, Forward: 3e6, Rewrite: 2_800_000},
		Client: cost.Client{Post: 30, Poll: 20},
		NIC: cost.NIC{
			Doorbell: 700, Completion: 460,
			Send:   cost.Verb{Total: 4e9, QP: cost.Place[cost.Rate]{Host: 1}, Latency: cost.Place[time.Duration]{Host: 1000, Device: 2000}},
			Write:  cost.Verb{Total: 63e6},
			Read:   cost.Verb{Total: 65e6},
			Atomic: cost.Verb{Total: 5e5, QP: cost.Place[cost.Rate]{Device: 9e6}, Word: cost.Place[cost.Rate]{Host: 3e6, Device: 1234}, Slots: 4096},
		},
	}
	if *got != want {
		t.Errorf("got  %+v\nwant %+v", *got, want)
	}
}

// Keys that are missing in a file get the values of the base, wherever the key base is, and the
// base itself is not changed.
func TestCostBase(t *testing.T) {
	old := &cost.Model{Name: "old", Link: cost.Link{Rate: 1, Delay: 2}, NIC: cost.NIC{Read: cost.Verb{QP: cost.Place[cost.Rate]{Host: 5, Device: 6}}}}
	was := *old
	base := func(name string) (*cost.Model, error) {
		if name != "old" {
			return nil, errors.New("there is only old")
		}
		return old, nil
	}
	got, err := ParseCost("x", []byte("link: {delay: 3ns}\nnic: {read: {qp: {host: 7}}}\nbase: old\nname: new\n"), base)
	want := was
	want.Name, want.Link.Delay, want.NIC.Read.QP.Host = "new", 3, 7
	if err != nil || *got != want || *old != was {
		t.Errorf("%+v, %v\nwant %+v", got, err, want)
	}
	for text, want := range map[string]string{
		"base: new":         "x:1:7: base: there is only old",
		"base:":             `x:1:1: key "base" has no value`,
		"base: [old]":       "x:1:7: base must be a single value, but is a list",
		"base: old\nlink:":  `x:2:1: key "link" has no value`,
		"base: old\nbase: ": "x:2:1: mapping key \"base\" already defined",
	} {
		if _, err := ParseCost("x", []byte(text), base); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	if _, err := ParseCost("x", []byte("base: old"), nil); err == nil || !strings.Contains(err.Error(), "no base can be named here") {
		t.Errorf("a base without names: %v", err)
	}
}

func TestMistakesInCosts(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "x.yaml:1:1: the file is empty",
		"a":                                 "x.yaml:1:1: a cost file must be a mapping, but is a text",
		"speed: 1":                          `x.yaml:1:1: unknown key "speed" in a cost file; known keys: name, base, link`,
		"link: 1":                           "x.yaml:1:7: link must be a mapping, but is a number",
		"link: {rate: 100}":                 `x.yaml:1:14: rate: "100" is no rate`,
		"link:\n  delay: -1ns":              `x.yaml:2:10: delay: "-1ns" is no duration`,
		"link: {overhead: 2000}":            "link overhead of 2000 bytes",
		"link: {overhead: 2MiB}":            "link overhead of 2097152 bytes",
		"switch: {cores: -1}":               "x.yaml:1:17: cores: -1 is out of bounds",
		"switch: {forward: fast}":           `x.yaml:1:19: forward: "fast" is no rate; write it like 2.7M`,
		"nic: {write: {word: {host: 1M}}}":  `x.yaml:1:15: unknown key "word" in write; known keys: total, qp, latency`,
		"nic:\n  read:\n    qp: {hots: 1}":  `x.yaml:3:10: unknown key "hots" in qp; did you mean host? known keys: host, device`,
		"nic: {read: {total: 1e9}}":         `x.yaml:1:21: total: "1e9" is no rate`,
		"nic: {read: {total: -5M}}":         `x.yaml:1:21: total: "-5M" is no rate`,
		"nic: {read: {total: 5000G}}":       `x.yaml:1:21: total: "5000G" is no rate`,
		"nic: {read: {total: .M}}":          `x.yaml:1:21: total: ".M" is no rate`,
		"nic: {doorbell: 2s}":               "x.yaml:1:1: cost: doorbell of 2s: want 0s to 1s",
		"client: {post: 1ns}\nclient: {}":   `x.yaml:2:1: mapping key "client" already defined`,
		"name: a/b":                         "x.yaml:1:7: name",
		"---\nname: a\n---\nname: b":        "a second document begins here",
		"nic: {atomic: {slots: 12}}":        "x.yaml:1:1: cost: slots for atomics of 12 bytes: want a multiple of 8",
		"nic: {write: {slots: 4KiB}}":       `x.yaml:1:15: unknown key "slots" in write`,
		"nic: {atomic: {word: {host: []}}}": "x.yaml:1:29: host must be a single value, but is a list",
	} {
		_, err := ParseCost("x.yaml", []byte(text), nil)
		var list Errors
		if !errors.As(err, &list) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q:\ngot  %v\nwant %s", text, err, want)
		}
	}
}

func FuzzParseCost(f *testing.F) {
	f.Add([]byte(fullCost))
	f.Add([]byte("base: x\nnic: {atomic: {word: {host: 3M}}}"))
	base := func(string) (*cost.Model, error) { return &cost.Model{}, nil }
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseCost("f", b, base)
		if err != nil {
			var list Errors
			if !errors.As(err, &list) {
				t.Errorf("error of type %T", err)
			}
			return
		}
		if err := m.Validate(); err != nil {
			t.Errorf("accepted, but %v", err)
		}
	})
}
