package ipc_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/engine"
)

// asProgram runs the helper program that envProgram names, if it is not a test.
func asProgram() {
	program, ok := map[string]func() error{"bench": benchProgram, "writer": writerProgram, "stranger": strangerProgram, "owner": ownerProgram, "full": fullProgram}[os.Getenv(envProgram)]
	if !ok {
		return // a test, here or in the second process
	}
	if err := program(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func (h *house) objects(nic int) (o engine.Objects) {
	h.dev[nic].With(func(e *engine.Engine) { o = e.Tables.Objects() })
	return o
}

// eventually polls a condition until it is true; what describes it in the failure.
func (h *house) eventually(t testing.TB, ask func() (what any, ok bool)) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		what, ok := ask()
		if ok {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("still %+v", what)
		}
	}
}

// empty waits until no application is attached and the NICs have no objects.
func (h *house) empty(t testing.TB) {
	t.Helper()
	h.waitObjects(t, 0, 0, 0)
	h.waitObjects(t, 1, 0, 0)
}

// waitObjects waits until no application is attached to a NIC and the NIC has that many domains and
// regions, and no other object.
func (h *house) waitObjects(t testing.TB, nic, pds, mrs int) {
	t.Helper()
	h.eventually(t, func() (any, bool) {
		o := h.objects(nic)
		clients := h.servers[nic].Clients()
		return []any{clients, o}, len(clients) == 0 && o.PDs == pds && o.MRs == mrs && o.QPs+o.CQs+o.SRQs+o.AHs+o.MWs+o.DMs == 0
	})
}
