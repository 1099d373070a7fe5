package perf

import (
	"fmt"
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// DialMemory connects qp, which must be in RESET, to the memory service of the host with address to, and returns the region
// that all its clients share. The region lives as long as the host's NIC; nothing of the host but that works for it.
func DialMemory(d rdmacm.Dialer, qp verbs.QP, to netip.Addr, p rdmacm.Params, deadline clock.Time) (Region, error) {
	private, err := d.Dial(qp, to, MemoryService, p, nil, deadline)
	if err != nil {
		return Region{}, fmt.Errorf("connect to the memory of %v: %w", to, err)
	}
	w, err := parseWelcome(private)
	if err == nil && w.Memory.Len == 0 {
		err = fmt.Errorf("the host shares no memory; give it some in the rack file (memory: 64MiB)")
	}
	if err != nil {
		return Region{}, fmt.Errorf("connect to the memory of %v: %w", to, err)
	}
	return w.Memory, nil
}
