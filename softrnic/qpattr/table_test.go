package qpattr

import (
	"errors"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/e2e/golden"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// The table, printed, is a golden file (IBTA 11.2.5.2/attributes).
func TestTable(t *testing.T) { golden.Check(t, "testdata/table.golden", Print()) }

// Every cell of pairs of states × service × attribute: without one that is required, and with one
// that does not belong there, the transition is refused, and the error names it; without one that is
// optional it is not (IBTA 11.2.5.2/attributes).
func TestEveryCell(t *testing.T) {
	cells := 0
	for _, service := range all {
		for from := verbs.StateReset; from <= verbs.StateError; from++ {
			for to := verbs.StateReset; to <= verbs.StateError; to++ {
				must, may := Of(service, from, to)
				if must&may != 0 || (must|may)&(State|Cap) != 0 {
					t.Fatalf("%v %v-%v: %v and %v", service, from, to, must, may)
				}
				legal := edge{from, to}.legal()
				if !legal && must|may != 0 {
					t.Errorf("%v %v-%v has attributes, but is no transition", service, from, to)
				}
				for bit := State; bit <= All; bit <<= 1 {
					cells += 2
					verify(t, cell{service, from, to}, must&^bit, bit, legal && must&bit == 0)
					verify(t, cell{service, from, to}, must|bit, bit, legal && (must|may|State)&bit != 0)
				}
			}
		}
	}
	if want := 5 * 7 * 7 * 21 * 2; cells != want {
		t.Errorf("%d cells, want %d", cells, want)
	}
}

type cell struct {
	service  verbs.QPType
	from, to verbs.QPState
}

// verify checks the answer for a command that names some attributes; about is the one in question.
func verify(t *testing.T, c cell, named, about Mask, good bool) {
	t.Helper()
	err := Check(c.service, c.from, c.to, named)
	want := verbs.ErrInvalid
	if !(edge{c.from, c.to}).legal() {
		want = verbs.ErrState
	}
	switch {
	case good && err != nil:
		t.Errorf("%v: %v: refused: %v", c, named, err)
	case !good && !errors.Is(err, want):
		t.Errorf("%v: %v: %v, want %v", c, named, err, want)
	case !good && (edge{c.from, c.to}).legal() && !strings.Contains(err.Error(), about.String()):
		t.Errorf("%v: %q does not name %v", c, err, about)
	}
}

// On Ethernet a program gets no alternate path anywhere, and an address changes in SQD only where the
// port does.
func TestRoCE(t *testing.T) {
	for _, service := range all {
		for from := verbs.StateReset; from <= verbs.StateError; from++ {
			for to := verbs.StateReset; to <= verbs.StateError; to++ {
				must, may := Of(service, from, to)
				if err := CheckRoCE(service, from, to, must|State); (err == nil) != (edge{from, to}).legal() {
					t.Errorf("%v %v-%v: %v", service, from, to, err)
				}
				if err := CheckRoCE(service, from, to, must|State|AltPath); err == nil {
					t.Errorf("%v %v-%v takes an alternate path", service, from, to)
				}
				if err := CheckRoCE(service, from, to, must|State|1<<25); !errors.Is(err, verbs.ErrNotSupported) {
					t.Errorf("%v %v-%v with an unknown attribute: %v", service, from, to, err)
				}
				if may&Dest == 0 {
					continue
				}
				if err := CheckRoCE(service, from, to, must|Dest); (err == nil) != (service != verbs.UC) {
					t.Errorf("%v %v-%v with a new address: %v", service, from, to, err)
				}
			}
		}
	}
}

// Unknown attributes are refused at every transition, and states that do not exist, too.
func TestUnknown(t *testing.T) {
	for from := verbs.StateReset; from <= verbs.StateError; from++ {
		must, _ := Of(verbs.RC, from, from)
		if err := Check(verbs.RC, from, from, must|1<<21); err == nil || !errors.Is(err, verbs.ErrState) && !strings.Contains(err.Error(), "unknown") {
			t.Errorf("unknown attribute in %v: %v", from, err)
		}
		for _, err := range []error{Check(verbs.RC, from, verbs.StateError+1, 0), Check(verbs.RC, verbs.StateError+1, from, 0)} {
			if !errors.Is(err, verbs.ErrState) {
				t.Errorf("a state behind ERR and %v: %v", from, err)
			}
		}
	}
}
