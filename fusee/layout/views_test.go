package layout

import "testing"

// A view is newer than another one if its change is, or if it is in a later state of the same change.
func TestNewerViews(t *testing.T) {
	for _, c := range []struct {
		epoch, than  uint32
		state, other ViewState
		want         bool
	}{
		{2, 1, 0, 0, true}, {1, 2, 0, 0, false}, {2, 2, 0, 0, false}, {2, 2, 1, 0, true}, {2, 2, 0, 1, false}, {2, 1, 0, 1, true}, {1, 2, 1, 0, false},
	} {
		v, w := FirstView(3).in(c.state).WithEpoch(c.epoch), FirstView(3).in(c.other).WithEpoch(c.than)
		if got := v.Newer(w); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// A server is a member of the first view if it is one of the store's, and two views meet if they have a member in
// common, whatever their states and epochs are.
func TestMembersOfViews(t *testing.T) {
	for n := 1; n <= MaxServers; n++ {
		v := FirstView(n).in(Gone).WithEpoch(1<<20 + 1)
		for i := range MaxServers + 4 {
			if v.Has(i) != (i < n) {
				t.Errorf("of %d servers, server %d is a member: %v", n, i, v.Has(i))
			}
		}
		if v.Members() != n || !v.Valid(n) || n > 1 && v.Valid(n-1) {
			t.Errorf("%d of %d members, valid %v", v.Members(), n, v.Valid(n))
		}
	}
	one, two, both := View(1).in(Gone).WithEpoch(5), View(2).in(Gone).WithEpoch(5), View(3)
	if one.Meets(two) || !one.Meets(both) || !both.Meets(two) || View(0).in(Gone).Meets(View(0).in(Gone)) {
		t.Error("views meet by their members alone")
	}
	if !one.Same(FirstView(1)) || one.Same(both) || both.Same(one) || !View(1<<15|1).Same(View(1<<15|1).in(Gone)) || View(1).Same(View(1<<15|1)) {
		t.Error("views are the same by their members alone")
	}
}
