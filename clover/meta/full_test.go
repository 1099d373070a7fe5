package meta

import (
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
)

// TestFullAfterReports: an INSERT is told that no slot is left only after all reports were followed: one of them may be
// of a DELETE, whose slot becomes free.
func TestFullAfterReports(t *testing.T) {
	s, cl := lossy()
	e := &entry{key: 1, at: layout.Location{Handle: s.mem.space.First(0, 0) + 3, Version: 1}, recorded: true, mirrored: true, slot: 4}
	s.chains.keys[1], s.chains.slots = e, nil
	s.chains.collect(cl.id, []rpc.Record{{Key: 1, New: layout.Location{Handle: s.mem.space.First(0, 0) + 2, Version: 1}, Deleted: true}})
	var a rpc.Answer
	s.openKey(cl, &rpc.Request{Op: rpc.OpOpen, Key: 2, At: layout.Location{Handle: s.mem.space.First(1, 0), Version: 1}}, &a)
	if a.Status == rpc.Full && len(s.chains.tidy.due) > s.chains.tidy.done {
		t.Errorf("%v, and %d entries are due", a.Status, len(s.chains.tidy.due))
	}
}
