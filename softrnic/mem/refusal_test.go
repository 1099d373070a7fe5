package mem

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Each fault is said with the values that decided it.
func TestRefusals(t *testing.T) {
	table := New(rand.New(rand.NewPCG(1, 2)), 0)
	pd, err := table.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	other, err := table.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	r, err := table.Reg(pd, make([]byte, 4096), verbs.LocalWrite|verbs.RemoteRead|verbs.MWBind)
	if err != nil {
		t.Fatal(err)
	}
	w, err := table.AllocWindow(pd)
	if err != nil {
		t.Fatal(err)
	}
	bound := verbs.NextRKey(w.RKey())
	if f := table.Bind(pd, 5, bound, verbs.SGE{Addr: r.Base(), Length: 8, LKey: r.LKey()}, verbs.RemoteRead); f != OK {
		t.Fatal(f)
	}
	base, last := r.Base(), r.Base()+4095
	for want, got := range map[string]Refusal{
		"no region has R_Key 0x700": table.Refused(pd, 5, 0x700, base, 8, verbs.RemoteRead),
		fmt.Sprintf("no region has R_Key %#x: that of region 1 has another last byte, which changes when it is registered again, invalidated or bound", r.RKey()^1): table.Refused(pd, 5, r.RKey()^1, base, 8, verbs.RemoteRead),
		fmt.Sprintf("R_Key %#x is that of a memory window for the peer of queue pair 0x5 alone", bound):                                                             table.Refused(pd, 6, bound, base, 8, verbs.RemoteRead),
		fmt.Sprintf("R_Key %#x is that of region 1 in protection domain 1, and the queue pair is in protection domain 2", r.RKey()):                                 table.Refused(other, 5, r.RKey(), base, 8, verbs.RemoteRead),
		fmt.Sprintf("R_Key %#x of region 1 allows local write, remote read, window bind, and the request needs remote atomic", r.RKey()):                            table.Refused(pd, 5, r.RKey(), base, 8, verbs.RemoteAtomic),
		fmt.Sprintf("R_Key %#x of region 2 allows remote read, and the request needs remote write", bound):                                                          table.Refused(pd, 5, bound, base, 8, verbs.RemoteWrite),
		fmt.Sprintf("R_Key %#x of region 1 covers %#x to %#x, and the request asks for 1 byte at %#x", r.RKey(), base, last, last+1):                                table.Refused(pd, 5, r.RKey(), last+1, 1, verbs.RemoteRead),
		fmt.Sprintf("R_Key %#x of region 1 allows the access now", r.RKey()):                                                                                        table.Refused(pd, 5, r.RKey(), last, 1, verbs.RemoteRead),
		"no region has L_Key 0x700": table.RefusedLocal(pd, verbs.SGE{Addr: base, Length: 8, LKey: 0x700}, false),
		fmt.Sprintf("L_Key %#x of region 1 covers %#x to %#x, and the work request asks for 9 bytes at %#x", r.LKey(), base, last, last-7): table.RefusedLocal(pd, verbs.SGE{Addr: last - 7, Length: 9, LKey: r.LKey()}, true),
	} {
		if got.String() != want {
			t.Errorf("%q\nwant %q", got, want)
		}
	}
	lost := table.Refused(pd, 5, r.RKey(), base, 8, verbs.RemoteRead)
	lost.Fault = BadPage
	if want := fmt.Sprintf("the program has unmapped a part of region 1 (R_Key %#x), and the request asks for 8 bytes at %#x", r.RKey(), base); lost.String() != want {
		t.Errorf("%q\nwant %q", lost, want)
	}
	for a, want := range map[verbs.Access]string{0: "only local reads", verbs.RemoteWrite | verbs.LocalWrite: "local write, remote write", 0x80: "unknown rights 0x80"} {
		if Rights(a) != want {
			t.Errorf("rights %#x are %q, want %q", uint32(a), Rights(a), want)
		}
	}
}

// A key that may not be invalidated is refused with the property that forbids it.
func TestRefusedInvalidate(t *testing.T) {
	table := New(rand.New(rand.NewPCG(1, 2)), 0)
	pd, err := table.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	plain, err := table.Reg(pd, make([]byte, 4096), verbs.RemoteRead)
	if err != nil {
		t.Fatal(err)
	}
	fast, err := table.AllocFast(pd, make([]byte, 4096))
	if err != nil {
		t.Fatal(err)
	}
	register := func(access verbs.Access) {
		t.Helper()
		if f := table.Register(pd, fast.RKey(), verbs.SGE{Addr: fast.Base(), Length: 64, LKey: fast.LKey()}, access); f != OK {
			t.Fatal(f)
		}
	}
	refused := func(r *Region, want string) {
		t.Helper()
		if got := table.RefusedInvalidate(pd, 5, r.RKey(), true); got != want {
			t.Errorf("%q\nwant %q", got, want)
		}
		if table.Invalidate(pd, 5, r.RKey(), true) != BadAccess {
			t.Errorf("R_Key %#x is invalidated", r.RKey())
		}
	}
	refused(plain, fmt.Sprintf("R_Key %#x of region 1 can only be deregistered: it is neither that of a fast registration nor that of a window of type 2", plain.RKey()))
	register(verbs.LocalWrite)
	refused(fast, fmt.Sprintf("R_Key %#x of region 2 allows local write, and a peer needs a remote right to invalidate it", fast.RKey()))
	if f := table.Invalidate(pd, 5, fast.RKey(), false); f != OK {
		t.Fatal(f)
	}
	register(verbs.LocalWrite | verbs.RemoteWrite | verbs.MWBind)
	w, err := table.AllocWindow(pd)
	if err != nil {
		t.Fatal(err)
	}
	if f := table.Bind(pd, 5, verbs.NextRKey(w.RKey()), verbs.SGE{Addr: fast.Base(), Length: 8, LKey: fast.LKey()}, verbs.RemoteWrite); f != OK {
		t.Fatal(f)
	}
	refused(fast, fmt.Sprintf("R_Key %#x of region 2 has memory windows bound to it: 1", fast.RKey()))
	if got, want := table.RefusedInvalidate(pd, 5, 0x700, true), "no region has R_Key 0x700"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
