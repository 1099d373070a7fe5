package uverbs_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/qpattr"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// services are the transport services by the numbers of libibverbs.
var services = map[uint8]verbs.QPType{uverbs.TypeRC: verbs.RC, uverbs.TypeUC: verbs.UC, uverbs.TypeUD: verbs.UD}

// The bits of the ABI are those of the table.
func TestMaskBits(t *testing.T) {
	for ours, theirs := range map[qpattr.Mask]uint32{
		qpattr.State: uverbs.MaskState, qpattr.CurrentState: uverbs.MaskCurrent, qpattr.SQDNotify: uverbs.MaskSQDNotify, qpattr.Access: uverbs.MaskAccess,
		qpattr.PKeyIndex: uverbs.MaskPKeyIndex, qpattr.QKey: uverbs.MaskQKey, qpattr.Dest: uverbs.MaskDest, qpattr.PathMTU: uverbs.MaskPathMTU,
		qpattr.Timeout: uverbs.MaskTimeout, qpattr.RetryCount: uverbs.MaskRetry, qpattr.RNRRetry: uverbs.MaskRNRRetry, qpattr.RecvPSN: uverbs.MaskRecvPSN,
		qpattr.MaxRdAtomic: uverbs.MaskRdAtomic, qpattr.MinRNRTimer: uverbs.MaskRNRTimer, qpattr.SendPSN: uverbs.MaskSendPSN,
		qpattr.MaxDestRdAtomic: uverbs.MaskDestAtomic, qpattr.DestQPN: uverbs.MaskDestQPN, qpattr.Port: uverbs.MaskPort, qpattr.AltPath: uverbs.MaskAltPath,
		qpattr.Migration: uverbs.MaskMigration,
	} {
		if uint32(ours) != theirs {
			t.Errorf("%v is %#x, and %#x in the ABI", ours, uint32(ours), theirs)
		}
	}
}

// valid are the values of all attributes for a queue pair whose peer is `peer`, also of those that
// its service does not have.
func valid(h uint32, peer uint32, timeout uint8) uverbs.ModifyQPArgs {
	m := uverbs.ModifyQPArgs{H: h}
	m.QPNumbers = uverbs.QPNumbers{QKey: 5, RecvPSN: 7, SendPSN: 7, DestQPN: peer, Access: allow &^ 1}
	m.QPState = uverbs.QPState{
		PathMTU: 3, MaxRdAtomic: 4, MaxDestRdAtomic: 4, MinRNRTimer: 12, Port: 1, Timeout: timeout, RetryCount: 7, RNRRetry: 7, AltPort: 1,
	}
	m.Dest.DestGID, m.Dest.Global, m.Dest.Port = verbs.GIDOf(ips[1]), 1, 1
	m.Alt = m.Dest
	return m
}

// cells makes queue pairs of one service in any state that a program can reach.
type cells struct {
	*client
	pd, cq  uint32
	service uint8
}

// in returns a queue pair in a state.
func (c *cells) in(state uint8) uint32 {
	c.t.Helper()
	qp := do[uverbs.QP](c.client, uverbs.CreateQP, uverbs.QPArgs{PD: c.pd, SendCQ: c.cq, RecvCQ: c.cq, MaxSend: 1, MaxRecv: 1, MaxSGE: 1, MaxRecvSGE: 1, Type: c.service})
	way := map[uint8][]uint8{1: {1}, 2: {1, 2}, 3: {1, 2, 3}, 4: {1, 2, 3, 4}, 6: {1, 6}}
	from := uint8(0)
	for _, to := range way[state] {
		must, _ := qpattr.Of(services[c.service], verbs.QPState(from), verbs.QPState(to))
		if errno := c.modify(qp.H, to, must|qpattr.State); errno != 0 {
			c.t.Fatalf("type %d on the way to %d: to %d: %v", c.service, state, to, errno)
		}
		from = to
	}
	return qp.H
}

// modify names these attributes, with valid values.
func (c *cells) modify(h uint32, to uint8, named qpattr.Mask) unix.Errno {
	m := valid(h, 9, 14)
	m.Mask, m.State, m.Current = uint32(named), to, do[uverbs.QPAttr](c.client, uverbs.QueryQP, uverbs.QueryQPArgs{H: h}).State
	_, errno := c.raw(uverbs.ModifyQP, uverbs.NoChannel, uverbs.Encode(m))
	return errno
}

// kernels is what a kernel answers on RoCE when a program names these attributes: as the table says,
// but an alternate path needs an InfiniBand port, and an address that changes in SQD changes
// the port with it, which UC cannot.
func kernels(service verbs.QPType, from, to verbs.QPState, named qpattr.Mask) unix.Errno {
	moves := named&qpattr.Dest != 0 && (to != verbs.StateRTR || named&qpattr.State == 0)
	switch {
	case named&^qpattr.All != 0:
		return unix.EOPNOTSUPP
	case named&qpattr.AltPath != 0, moves && service == verbs.UC, qpattr.Check(service, from, to, named) != nil:
		return unix.EINVAL
	}
	return 0
}

// Every cell of pairs of states × service × attribute over the commands of a program: what a kernel
// takes is taken, what it refuses is refused, and then nothing has changed (IBTA
// 11.2.5.2/attributes). A program cannot bring a queue pair to SQE by a modify command.
func TestEveryModifyCell(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	tried := 0
	for service, of := range services {
		c := newCells(t, h, service)
		for _, from := range []uint8{0, 1, 2, 3, 4, 6} {
			qp := c.in(from)
			for to := range uint8(8) {
				must, _ := qpattr.Of(of, verbs.QPState(from), verbs.QPState(to))
				masks := map[qpattr.Mask]bool{must | qpattr.State: true, must | qpattr.State | 1<<21: true, must | qpattr.State | qpattr.All: true}
				if from == to {
					masks[must] = true
				}
				for bit := qpattr.State; bit <= qpattr.All; bit <<= 1 {
					masks[(must|qpattr.State)&^bit|qpattr.State] = true
					masks[must|qpattr.State|bit] = true
				}
				for named := range masks {
					tried++
					before := do[uverbs.QPAttr](c.client, uverbs.QueryQP, uverbs.QueryQPArgs{H: qp})
					want := kernels(of, verbs.QPState(from), verbs.QPState(to), named)
					errno := c.modify(qp, to, named)
					if errno != want {
						t.Errorf("%v %v-%v with %v: %v, want %v", of, verbs.QPState(from), verbs.QPState(to), named, errno, want)
					}
					after := do[uverbs.QPAttr](c.client, uverbs.QueryQP, uverbs.QueryQPArgs{H: qp})
					switch {
					case errno != 0 && after != before:
						t.Errorf("%v %v-%v with %v: refused, but %+v became %+v", of, verbs.QPState(from), verbs.QPState(to), named, before, after)
					case errno == 0:
						if after.State != to {
							t.Errorf("%v %v-%v with %v: the state is %d", of, verbs.QPState(from), verbs.QPState(to), named, after.State)
						}
						c.end(uverbs.DestroyQP, qp, 0)
						qp = c.in(from)
					}
				}
			}
			c.end(uverbs.DestroyQP, qp, 0)
		}
	}
	t.Logf("%d commands", tried)
}
