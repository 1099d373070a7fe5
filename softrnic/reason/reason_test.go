package reason

import (
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/mem"
)

// The table is complete: numbers ascend, and each row has its texts.
func TestTable(t *testing.T) {
	last := None
	names := map[string]bool{}
	for _, r := range Table() {
		if r.Code <= last {
			t.Errorf("%#x comes after %#x", uint32(r.Code), uint32(last))
		}
		last = r.Code
		if r.Text == "" || r.Look == "" || r.Name == "" || strings.HasSuffix(r.Text, ".") || names[r.Name] {
			t.Errorf("%#x: %+v", uint32(r.Code), r)
		}
		names[r.Name] = true
		if got, ok := r.Code.Row(); !ok || got.Text != r.Text || r.Code.String() != r.Text {
			t.Errorf("%#x is found as %+v", uint32(r.Code), got)
		}
	}
	if _, ok := None.Row(); ok || Code(0x99).String() != "reason 0x99" {
		t.Error("a number that is no code has a row")
	}
}

// Each fault of memory has three codes, by who named the memory; an access that fails although the
// checks pass has lost its pages.
func TestCodesOfFaults(t *testing.T) {
	for f, want := range map[mem.Fault][3]Code{
		mem.OK:        {LocalPage, RemotePage, ReceivePage},
		mem.BadKey:    {LocalKey, RemoteKey, ReceiveKey},
		mem.BadPD:     {LocalPD, RemotePD, ReceivePD},
		mem.BadAccess: {LocalAccess, RemoteAccess, ReceiveAccess},
		mem.BadBounds: {LocalBounds, RemoteBounds, ReceiveBounds},
		mem.BadPage:   {LocalPage, RemotePage, ReceivePage},
	} {
		if got := [3]Code{OfLocal(f), OfRemote(f), OfReceive(f)}; got != want {
			t.Errorf("%v: %x, want %x", f, got, want)
		}
	}
}
