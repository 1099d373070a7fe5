package serve

import (
	"slices"
	"testing"
)

// The status shows an unmodified program once: the connection of libibverbs, with the listeners of
// that of librdmacm. It tells programs apart by process and user, and cannot for those of other PID
// namespaces, which have PID 0.
func TestRowsOfPrograms(t *testing.T) {
	verbsOf := func(id uint64, pid int32, uid uint32) ClientStatus {
		return ClientStatus{ID: id, PID: pid, UID: uid, QPs: int(id), Listeners: 1}
	}
	managerOf := func(id uint64, pid int32, uid uint32) ClientStatus {
		return ClientStatus{ID: id, PID: pid, UID: uid, Listeners: 2, manager: true}
	}
	merged := verbsOf(1, 7, 0)
	merged.Listeners = 3
	later := verbsOf(2, 7, 0)
	later.Listeners = 3
	for name, c := range map[string]struct{ in, want []ClientStatus }{
		"libibverbs first":     {[]ClientStatus{verbsOf(1, 7, 0), managerOf(2, 7, 0)}, []ClientStatus{merged}},
		"librdmacm first":      {[]ClientStatus{managerOf(1, 7, 0), verbsOf(2, 7, 0)}, []ClientStatus{later}},
		"two contexts":         {[]ClientStatus{verbsOf(1, 7, 0), verbsOf(2, 7, 0)}, nil},
		"two processes":        {[]ClientStatus{verbsOf(1, 7, 0), managerOf(2, 8, 0)}, nil},
		"two users":            {[]ClientStatus{verbsOf(1, 7, 0), managerOf(2, 7, 1)}, nil},
		"unknown processes":    {[]ClientStatus{verbsOf(1, 0, 0), managerOf(2, 0, 0)}, nil},
		"another one between":  {[]ClientStatus{verbsOf(1, 7, 0), verbsOf(3, 9, 0), managerOf(4, 7, 0)}, []ClientStatus{merged, verbsOf(3, 9, 0)}},
		"librdmacm alone":      {[]ClientStatus{managerOf(1, 7, 0)}, nil},
		"process 1 of another": {[]ClientStatus{verbsOf(1, 1, 0), managerOf(2, 2, 0)}, nil},
	} {
		want := c.want
		if want == nil {
			want = c.in // each its own row
		}
		if got := oneRow(slices.Clone(c.in)); !slices.Equal(got, want) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

// A name of a program is shown without bytes that a terminal might interpret.
func TestPrintableNames(t *testing.T) {
	for in, want := range map[string]string{" a~": " a~", "\x1f\x7f\x00": "???", "é\xff": "??", "": ""} {
		if got := printable(in); got != want {
			t.Errorf("%q is shown as %q, want %q", in, got, want)
		}
	}
}
