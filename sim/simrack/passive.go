package simrack

import (
	"encoding/binary"
	"fmt"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Passive describes a memory server without a program: it gives every client that connects access
// to its memory, and does nothing more.
type Passive struct {
	// Bytes is the size of the memory in bytes. Device is true if it is device memory of the NIC.
	Bytes  int
	Device bool
	// Service is the service to which clients connect. The private data of its answer say where the
	// memory is; see ParseMemory.
	Service string
	// Switch is the service to which a switch with rules connects, by the connection manager of the
	// NIC; "" means that there is no such service.
	Switch string
}

// PassiveRack describes a rack with the given number of compute hosts, cn0, cn1 and so on, and one
// memory server, ms0, which the caller makes a Passive by Host.Lend. If mode is hardened or
// published, the switch replaces the atomics to ms0, on connections that it makes to service. If
// mode is "", the switch only forwards. misses is the value of the rule's key misses, which says
// what answers a CMP_SWAP that will fail; "" means the default: the server answers.
func PassiveRack(name string, hosts int, mode, service, misses string) (*rackfile.Rack, error) {
	file := fmt.Sprintf("name: %s\nhosts:\n  - {name: \"cn[0-%d]\", role: compute}\n  - {name: ms0, role: memory}\n", name, hosts-1)
	if misses != "" {
		misses = ", misses: " + misses
	}
	if mode != "" {
		file += fmt.Sprintf("switch:\n  program: swordbox\n  rules:\n    - {server: ms0, action: atomics, mode: %s, service: %s%s}\n", mode, service, misses)
	}
	return rackfile.Parse([]byte(file))
}

// Lend makes h a Passive server, in the application that has the context ctx. It returns only with
// an error; verbs.ErrClosed means that the host has crashed.
func (h *Host) Lend(ctx verbs.Context, p Passive) error {
	pd, err := ctx.AllocPD()
	if err != nil {
		return err
	}
	mr, err := p.region(ctx, pd)
	if err != nil {
		return err
	}
	if p.Switch != "" {
		l, err := h.ConnManager(ctx).Listen(p.Switch)
		if err != nil {
			return err
		}
		ctx.Runtime().Go("switch", func() { h.rack.Stop(acceptAll(ctx, pd, l, nil)) })
	}
	l, err := h.Manager(ctx).Listen(p.Service)
	if err != nil {
		return err
	}
	return acceptAll(ctx, pd, l, MemoryAt(mr))
}

func (p *Passive) region(ctx verbs.Context, pd verbs.PD) (verbs.MR, error) {
	const access = verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic
	if !p.Device {
		return pd.RegMR(nil, p.Bytes, access)
	}
	dm, err := ctx.AllocDM(p.Bytes)
	if err != nil {
		return nil, err
	}
	return pd.RegDM(dm, 0, p.Bytes, access)
}

// acceptAll makes a queue pair in pd for every client that connects, until Accept fails. private is
// the private data of the answers.
func acceptAll(ctx verbs.Context, pd verbs.PD, l rdmacm.Listener, private []byte) error {
	for {
		req, err := l.Accept(clock.Never)
		if err != nil {
			return err
		}
		cq, err := ctx.CreateCQ(1)
		if err != nil {
			return err
		}
		qp, err := pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq})
		if err != nil {
			return err
		}
		ctx.Runtime().Go("accept", func() { _ = req.Accept(qp, rdmacm.Params{}, private, clock.Never) }) // the dialer gets the error, too
	}
}

// MemoryAt returns the private data by which ParseMemory finds the memory region mr.
func MemoryAt(mr verbs.MR) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, mr.Addr()), mr.RKey())
}

// ParseMemory reads the private data of the answer of a Passive server: the address of its memory,
// and the R_Key.
func ParseMemory(private []byte) (addr uint64, rkey uint32, err error) {
	if len(private) != 12 {
		return 0, 0, fmt.Errorf("simrack: %d bytes of private data from a memory server, want 12", len(private))
	}
	return binary.BigEndian.Uint64(private), binary.BigEndian.Uint32(private[8:]), nil
}
