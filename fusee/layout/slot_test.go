package layout

import "testing"

// A slot that its key leaves, or has left, shows from which object. A DELETE's value is not such a slot.
func TestVacated(t *testing.T) {
	f := Hardened
	ref := Ref{Fingerprint: 7, Units: 3, Server: 2, Place: 99, Version: 5}
	other := ref
	other.Version++
	was := f.Slot(ref)
	for _, c := range []struct {
		what    string
		s, from Slot
		want    bool
	}{
		{"leaves", f.Leave(was), was, true},
		{"has left", f.Emptied(ref), was, true},
		{"has left after a PUT that moved it", f.Emptied(f.Ref(f.Leave(was))), f.Leave(was), true},
		{"is there", was, was, false},
		{"another version leaves", f.Leave(f.Slot(other)), was, false},
		{"another version has left", f.Emptied(other), was, false},
		{"a DELETE has emptied it", f.Emptied(ref), f.Emptied(ref), false},
	} {
		if got := f.Vacated(c.s, c.from); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
	if Published.Vacated(0, was) {
		t.Error("a published slot shows that its key has left")
	}
}
