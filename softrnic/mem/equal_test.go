package mem

import (
	"math/rand/v2"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A region has one number for both keys, which opens what each of the keys opens: the rights decide what a peer may
// do. A window's key is no L_Key.
func TestKeysThatAreEqual(t *testing.T) {
	tab := New(rand.New(rand.NewPCG(1, 2)), 0)
	pd, err := tab.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	own, open := reg(t, tab, pd, 64, verbs.LocalWrite|verbs.MWBind), reg(t, tab, pd, 64, allAccess)
	for _, r := range []*Region{own, open} {
		if r.LKey() != r.RKey() {
			t.Errorf("keys %#x and %#x", r.LKey(), r.RKey())
		}
		if _, f := tab.Local(pd, verbs.SGE{Addr: r.Base(), Length: 8, LKey: r.RKey()}, true); f != OK {
			t.Errorf("R_Key in a work request: %v", f)
		}
	}
	if _, f := tab.Remote(pd, 9, open.LKey(), open.Base(), 8, verbs.RemoteWrite); f != OK {
		t.Errorf("L_Key of a peer: %v", f)
	}
	if _, f := tab.Remote(pd, 9, own.LKey(), own.Base(), 8, verbs.RemoteRead); f != BadAccess {
		t.Errorf("L_Key of memory without a remote right: %v", f)
	}
	w, err := tab.AllocWindow(pd)
	if err != nil {
		t.Fatal(err)
	}
	key := w.RKey() + 1
	if f := tab.Bind(pd, 9, key, verbs.SGE{Addr: own.Base(), Length: 8, LKey: own.LKey()}, verbs.RemoteRead); f != OK {
		t.Fatal(f)
	}
	if _, f := tab.Local(pd, verbs.SGE{Addr: own.Base(), Length: 8, LKey: key}, false); f != BadKey {
		t.Errorf("key of a window in a work request: %v", f)
	}
	gone := open.LKey()
	if err := tab.Dereg(open); err != nil {
		t.Fatal(err)
	}
	if _, f := tab.Local(pd, verbs.SGE{Addr: open.Base(), Length: 8, LKey: gone}, false); f != BadKey {
		t.Errorf("L_Key of a region that has ended: %v", f)
	}
	if _, f := tab.Remote(pd, 9, gone, open.Base(), 8, verbs.RemoteRead); f != BadKey {
		t.Errorf("R_Key of a region that has ended: %v", f)
	}
}
