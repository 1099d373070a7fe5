package uverbs_test

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ucma"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// commands are all commands of package uverbs, in an order in which each can succeed with the objects that
// those before it have made; see wholeScript.
var commands = []commandKind{
	{op: uverbs.GetContext},
	{op: uverbs.QueryDevice},
	{op: uverbs.QueryDevice | uverbs.Extended, args: func(*hostile, *step) []any { return []any{uint64(0)} }},
	{op: uverbs.QueryPort, args: func(*hostile, *step) []any { return []any{uint64(1)} }},
	{op: uverbs.QueryLimits},
	{op: uverbs.AllocPD, made: pdKind},
	{op: uverbs.RegMR, made: mrKind, args: func(x *hostile, s *step) []any {
		return []any{x.region(s, allow)}
	}, answered: func(x *hostile, _ *step, b []byte) { x.keys(b) }},
	{op: uverbs.QueryMR, args: one(mrKind)},
	{op: uverbs.ReregMR, args: func(x *hostile, s *step) []any {
		r := x.region(&step{One: s.One, Two: s.Two}, allow)
		return []any{uverbs.ReregMRArgs{H: x.handle(s, mrKind), Flags: 1 << (s.One % 3), Start: r.Start, Length: r.Length, VA: r.VA, PD: x.newest(pdKind), Access: allow}}
	}, answered: func(x *hostile, _ *step, b []byte) {
		if len(b) >= 8 {
			x.lkey, x.rkey = binary.NativeEndian.Uint32(b), binary.NativeEndian.Uint32(b[4:])
		}
	}},
	{op: uverbs.AllocMW, made: mwKind, args: func(x *hostile, s *step) []any {
		return []any{uverbs.MWArgs{PD: x.handle(s, pdKind), Type: 1 + s.One&1}}
	}, answered: func(x *hostile, s *step, b []byte) {
		if len(b) >= 8 && s.Two != 0 {
			x.rkey = binary.NativeEndian.Uint32(b[4:])
		}
	}},
	{op: uverbs.AllocDM, made: dmKind, args: func(_ *hostile, s *step) []any {
		return []any{uverbs.AllocDMArgs{Length: 64 << s.One, Align: uint32(s.Two)}}
	}},
	{op: uverbs.CopyToDM, args: func(x *hostile, s *step) []any {
		return []any{uverbs.DMPlace{H: x.handle(s, dmKind), Length: 8, Offset: uint64(s.One) * 4}, uint64(s.Two)}
	}},
	{op: uverbs.CopyFromDM, args: func(x *hostile, s *step) []any {
		return []any{uverbs.DMPlace{H: x.handle(s, dmKind), Length: 8 << (s.Two % 32), Offset: uint64(s.One) * 4}}
	}},
	{op: uverbs.QueryDM, args: one(dmKind)},
	{op: uverbs.RegDM, made: mrKind, args: func(x *hostile, s *step) []any {
		return []any{uverbs.RegDMArgs{Offset: uint64(s.One), Length: 32, PD: x.newest(pdKind), DM: x.handle(s, dmKind), Access: allow | uverbs.ZeroBased}}
	}, answered: func(x *hostile, s *step, b []byte) {
		if s.Two != 0 {
			x.keys(b)
		}
	}},
	{op: uverbs.CreateCompChannel, made: channelKind},
	{op: uverbs.CreateCQ, made: cqKind, channel: aChannel, args: func(_ *hostile, s *step) []any {
		return []any{uverbs.CQArgs{User: 7, CQE: 15 + uint32(s.Two)*16, Channel: int32(s.One) - 1}}
	}, answered: ringAtByte(0)},
	{op: uverbs.CreateCQ | uverbs.Extended, made: cqKind, channel: aChannel, args: func(_ *hostile, s *step) []any {
		return []any{uverbs.ExCQArgs{User: 7, CQE: 15, Channel: int32(s.One) - 1, Flags: uint32(s.Two)}}
	}, answered: ringAtByte(0)},
	{op: uverbs.ReqNotifyCQ, args: func(x *hostile, s *step) []any {
		return []any{uverbs.Notify{H: x.handle(s, cqKind), Solicited: uint32(s.One)}}
	}},
	{op: uverbs.ModifyCQ | uverbs.Extended, args: func(x *hostile, s *step) []any {
		return []any{uverbs.ModifyCQArgs{H: x.handle(s, cqKind), Mask: uverbs.MaskModerate, Count: uint16(s.One), Period: uint16(s.Two)}}
	}},
	{op: uverbs.ResizeCQ, args: func(x *hostile, s *step) []any {
		return []any{uverbs.ResizeCQArgs{H: x.handle(s, cqKind), CQE: 31 + uint32(s.One)*64}}
	}, answered: ringAtByte(8)},
	{op: uverbs.CQNumber, args: one(cqKind), answered: func(x *hostile, _ *step, b []byte) {
		if len(b) >= 4 {
			x.cqn = binary.NativeEndian.Uint32(b)
		}
	}},
	{op: uverbs.CreateAH, made: ahKind, args: func(x *hostile, s *step) []any {
		a := uverbs.AHArgs{PD: x.handle(s, pdKind)}
		a.Attr.DestGID, a.Attr.Global, a.Attr.Port = verbs.GIDOf(ips[s.One&1]), 1, 1
		return []any{a}
	}, answered: func(x *hostile, _ *step, b []byte) {
		if len(b) >= 8 {
			x.ah = binary.NativeEndian.Uint32(b[4:])
		}
	}},
	{op: uverbs.CreateSRQ, made: srqKind, args: func(x *hostile, s *step) []any {
		return []any{uverbs.SRQArgs{PD: x.handle(s, pdKind), MaxWR: 8 + uint32(s.One)*8, MaxSGE: 1 + uint32(s.Two)}}
	}, answered: ringAtByte(16)},
	{op: uverbs.QuerySRQ, args: one(srqKind)},
	{op: uverbs.ModifySRQ, args: func(x *hostile, s *step) []any {
		return []any{uverbs.ModifySRQArgs{H: x.handle(s, srqKind), Mask: []uint32{uverbs.MaskSRQLimit, uverbs.MaskSRQSize, 3}[s.Two%3], MaxWR: 16 + uint32(s.One), Limit: uint32(s.One)}}
	}},
	{op: uverbs.OpenXRCD, made: xrcdKind, args: func(x *hostile, s *step) []any {
		if s.One == 0 {
			return []any{uverbs.XRCDArgs{FD: -1, Flags: unix.O_CREAT}}
		}
		return []any{uverbs.XRCDArgs{FD: 5, Flags: unix.O_CREAT << (s.Two % 2)}}
	}, files: func(x *hostile, s *step) []int {
		return []int{x.file, x.file}[:s.One%3]
	}},
	{op: uverbs.CreateXSRQ, made: srqKind, args: func(x *hostile, s *step) []any {
		return []any{uverbs.XSRQArgs{Type: uverbs.SRQXRC, PD: x.newest(pdKind), MaxWR: 8, MaxSGE: 2, XRCD: x.handle(s, xrcdKind), CompleteQ: x.newest(cqKind)}}
	}, answered: func(x *hostile, s *step, b []byte) {
		if _, ok := x.ringOf(b, 16); ok {
			x.srqn = binary.NativeEndian.Uint32(b[12:])
		}
	}},
	{op: uverbs.CreateQP, made: qpKind, args: func(x *hostile, s *step) []any { return []any{x.queuePair(s)} }, answered: aQueuePair},
	{op: uverbs.OpenQP, made: qpKind, args: func(x *hostile, s *step) []any {
		return []any{uverbs.OpenQPArgs{XRCD: x.newest(xrcdKind), QPN: x.qpns[0], Type: uverbs.TypeXRCTarget}}
	}},
	{op: uverbs.CreateQP | uverbs.Extended, made: qpKind, args: func(x *hostile, s *step) []any {
		return []any{uverbs.ExQPArgs{QPArgs: x.queuePair(s), CompMask: uint32(s.Change[0][1]) >> 6}}
	}, answered: aQueuePair},
	{op: uverbs.QueryQP, args: func(x *hostile, s *step) []any {
		return []any{uverbs.QueryQPArgs{H: x.handle(s, qpKind), Mask: uint32(s.One)}}
	}},
	{op: uverbs.UseRing, args: func(x *hostile, s *step) []any {
		return []any{uverbs.RingArgs{Addr: x.mem.shared + ringAt, H: x.handle(s, qpKind), LKey: x.lkey, Blocks: ringBlocks, Flags: uint32(s.One), Prefetch: uint32(s.Two)}}
	}},
	{op: uverbs.ModifyQP, args: func(x *hostile, s *step) []any { return []any{x.modify(s)} }},
	{op: uverbs.ModifyQP | uverbs.Extended, args: func(x *hostile, s *step) []any { return []any{x.modify(s)} }},
	{op: uverbs.PostSend, args: one(qpKind)},
	{op: uverbs.Doorbell, args: func(x *hostile, s *step) []any {
		return []any{uverbs.DoorbellArgs{H: x.handle(s, qpKind), Limit: uint32(s.One)}}
	}},
	{op: uverbs.AttachMulticast, args: aGroup},
	{op: uverbs.DetachMulticast, args: aGroup},
	{op: uverbs.Repost, channel: func(x *hostile, s *step) uint32 {
		if s.One == 0 {
			return uverbs.NoChannel
		}
		return x.handle(s, channelKind)
	}, args: func(_ *hostile, s *step) []any { return []any{make([]byte, int(s.Two)*4)} }},
	{op: uverbs.ShareMemory, args: func(x *hostile, s *step) []any {
		start := x.mem.private + uint64(s.One)*4096
		return []any{uverbs.ShareArgs{Start: start, End: start + 8192 + uint64(s.Two)*4096}}
	}},
	{op: uverbs.UnshareMemory, args: func(_ *hostile, s *step) []any { return []any{uverbs.UnshareArgs{Closing: uint32(s.One)}} }},
	{op: uverbs.DestroyAH, args: one(ahKind)},
	{op: uverbs.DestroyQP, args: ended(qpKind)},
	{op: uverbs.DestroySRQ, args: ended(srqKind)},
	{op: uverbs.CloseXRCD, args: one(xrcdKind)},
	{op: uverbs.DestroyCQ, args: ended(cqKind)},
	{op: uverbs.DeallocMW, args: one(mwKind)},
	{op: uverbs.DeregMR, args: one(mrKind)},
	{op: uverbs.FreeDM, args: one(dmKind)},
	{op: uverbs.DeallocPD, args: one(pdKind)},
}

// one has the arguments of a command that names an object, and nothing else.
func one(k kind) func(*hostile, *step) []any {
	return func(x *hostile, s *step) []any { return []any{uverbs.Handle{H: x.handle(s, k)}} }
}

// ended is one for a command that counts the events of the object.
func ended(k kind) func(*hostile, *step) []any {
	return func(x *hostile, s *step) []any { return []any{uverbs.Handle{H: x.handle(s, k)}, uint32(0)} }
}

// aChannel is the channel of a new completion queue: One is 0 for none.
func aChannel(x *hostile, s *step) uint32 {
	if s.One == 0 {
		return uverbs.NoChannel
	}
	return x.handle(s, channelKind)
}

func aGroup(x *hostile, s *step) []any {
	return []any{uverbs.MulticastArgs{Group: verbs.GID{10: 0xff, 11: 0xff, 12: 239, 13: 1, 14: 2, 15: 3 + s.One}, H: x.handle(s, qpKind)}}
}

// ringAtByte remembers the ring in an answer, whose place is in byte `at`.
func ringAtByte(at int) func(*hostile, *step, []byte) {
	return func(x *hostile, _ *step, b []byte) { x.ringOf(b, at) }
}

// region is a part of the lent memory: shared, private, or one that is on demand.
func (x *hostile) region(s *step, access uint32) (a uverbs.RegMRArgs) {
	a = uverbs.RegMRArgs{Start: x.mem.shared, Length: lentLen, PD: x.handle(s, pdKind), Access: access}
	switch s.One % 4 {
	case 1:
		a.Start, a.Length = x.mem.private+uint64(s.Two)*64, 4096
	case 2:
		a.Access |= uverbs.OnDemand | uverbs.OwnProvider
	case 3:
		a.Start, a.Length, a.Access = 0, ^uint64(0), access|uverbs.OnDemand|uverbs.OwnProvider
	}
	a.VA = a.Start
	return a
}

// keys takes the keys of a new region.
func (x *hostile) keys(b []byte) {
	if len(b) >= 12 {
		x.lkey, x.rkey = binary.NativeEndian.Uint32(b[4:]), binary.NativeEndian.Uint32(b[8:])
	}
}

// queuePair are the arguments of a new queue pair, of the type that One says.
func (x *hostile) queuePair(s *step) uverbs.QPArgs {
	typ := []uint8{uverbs.TypeRC, uverbs.TypeUC, uverbs.TypeUD, uverbs.TypeXRCInitiator, uverbs.TypeXRCTarget}[s.One%5]
	cq := x.newest(cqKind)
	a := uverbs.QPArgs{
		User: 9, PD: x.handle(s, pdKind), SendCQ: cq, RecvCQ: cq, MaxSend: testWRs, MaxRecv: testWRs, MaxSGE: testSGEs, MaxRecvSGE: testSGEs, SignalAll: 1, Type: typ, Own: 1,
	}
	switch {
	case typ == uverbs.TypeXRCTarget:
		a = uverbs.QPArgs{User: 9, PD: x.handle(s, xrcdKind), Type: typ, Own: 1}
	case typ == uverbs.TypeXRCInitiator:
		a.MaxRecv, a.MaxRecvSGE = 0, 0
	case s.Two&1 != 0:
		a.HasSRQ, a.SRQ = 1, x.newest(srqKind)
	}
	a.MaxInline = uint32(s.Two>>1) * 8
	return a
}

// aQueuePair takes what a new queue pair is.
func aQueuePair(x *hostile, s *step, b []byte) {
	if len(b) < 64 {
		return
	}
	bell := binary.NativeEndian.Uint32(b)
	x.qpns[1], x.qpns[0] = x.qpns[0], binary.NativeEndian.Uint32(b[4:])
	x.states[bell], x.types[bell] = 0, []uint8{uverbs.TypeRC, uverbs.TypeUC, uverbs.TypeUD, uverbs.TypeXRCInitiator, uverbs.TypeXRCTarget}[s.One%5]
	x.ringOf(b, 32)
	if send, ok := x.ringOf(b, 48); ok {
		x.send, x.sends, x.bell = send, true, bell
	}
}

// modify takes a queue pair to its next state, or to the one that One says. Its peer is itself, or the newest
// queue pair of the program.
func (x *hostile) modify(s *step) (m uverbs.ModifyQPArgs) {
	h := x.handle(s, qpKind)
	from := x.states[h]
	to := from%3 + 1
	if s.One != 0 {
		to = s.One % 7
	}
	m = uverbs.ModifyQPArgs{H: h, Mask: needs(x.types[h], from, to) | uint32(s.Two)<<13}
	x.states[h] = to
	m.State, m.Access, m.Port, m.QKey = to, allow&^1, 1, groupQKey
	m.PathMTU, m.DestQPN, m.MaxDestRdAtomic, m.MinRNRTimer = 3, x.qpns[0], 4, 1
	m.Dest.DestGID, m.Dest.Global, m.Dest.Port = verbs.GIDOf(ips[0]), 1, 1
	m.Timeout, m.RetryCount, m.RNRRetry, m.MaxRdAtomic = 8, 1, 1, 4
	return m
}

// verbsNamed are the constants of type Op of package uverbs; ModifyCQ exists only as an extended command.
var verbsNamed = map[string]uverbs.Op{
	"GetContext":        uverbs.GetContext,
	"QueryDevice":       uverbs.QueryDevice,
	"QueryPort":         uverbs.QueryPort,
	"AllocPD":           uverbs.AllocPD,
	"DeallocPD":         uverbs.DeallocPD,
	"CreateAH":          uverbs.CreateAH,
	"DestroyAH":         uverbs.DestroyAH,
	"RegMR":             uverbs.RegMR,
	"ReregMR":           uverbs.ReregMR,
	"DeregMR":           uverbs.DeregMR,
	"AllocMW":           uverbs.AllocMW,
	"DeallocMW":         uverbs.DeallocMW,
	"CreateCompChannel": uverbs.CreateCompChannel,
	"CreateCQ":          uverbs.CreateCQ,
	"ResizeCQ":          uverbs.ResizeCQ,
	"DestroyCQ":         uverbs.DestroyCQ,
	"ReqNotifyCQ":       uverbs.ReqNotifyCQ,
	"CreateQP":          uverbs.CreateQP,
	"QueryQP":           uverbs.QueryQP,
	"ModifyQP":          uverbs.ModifyQP,
	"DestroyQP":         uverbs.DestroyQP,
	"PostSend":          uverbs.PostSend,
	"AttachMulticast":   uverbs.AttachMulticast,
	"DetachMulticast":   uverbs.DetachMulticast,
	"CreateSRQ":         uverbs.CreateSRQ,
	"ModifySRQ":         uverbs.ModifySRQ,
	"QuerySRQ":          uverbs.QuerySRQ,
	"DestroySRQ":        uverbs.DestroySRQ,
	"OpenXRCD":          uverbs.OpenXRCD,
	"CloseXRCD":         uverbs.CloseXRCD,
	"CreateXSRQ":        uverbs.CreateXSRQ,
	"OpenQP":            uverbs.OpenQP,
	"ModifyCQ":          uverbs.ModifyCQ | uverbs.Extended,
	"Extended":          uverbs.Extended,
	"Repost":            uverbs.Repost,
	"ShareMemory":       uverbs.ShareMemory,
	"UnshareMemory":     uverbs.UnshareMemory,
	"AllocDM":           uverbs.AllocDM,
	"FreeDM":            uverbs.FreeDM,
	"CopyToDM":          uverbs.CopyToDM,
	"CopyFromDM":        uverbs.CopyFromDM,
	"RegDM":             uverbs.RegDM,
	"QueryDM":           uverbs.QueryDM,
	"QueryMR":           uverbs.QueryMR,
	"QueryLimits":       uverbs.QueryLimits,
	"UseRing":           uverbs.UseRing,
	"Doorbell":          uverbs.Doorbell,
	"CQNumber":          uverbs.CQNumber,
}

// managerNamed are those of package ucma.
var managerNamed = map[string]ucma.Op{
	"CreateID":        ucma.CreateID,
	"DestroyID":       ucma.DestroyID,
	"BindIP":          ucma.BindIP,
	"ResolveIP":       ucma.ResolveIP,
	"ResolveRoute":    ucma.ResolveRoute,
	"QueryRoute":      ucma.QueryRoute,
	"Connect":         ucma.Connect,
	"Listen":          ucma.Listen,
	"Accept":          ucma.Accept,
	"Reject":          ucma.Reject,
	"Disconnect":      ucma.Disconnect,
	"InitQPAttr":      ucma.InitQPAttr,
	"GetEvent":        ucma.GetEvent,
	"GetOption":       ucma.GetOption,
	"SetOption":       ucma.SetOption,
	"Notify":          ucma.Notify,
	"JoinIPMulticast": ucma.JoinIPMulticast,
	"LeaveMulticast":  ucma.LeaveMulticast,
	"MigrateID":       ucma.MigrateID,
	"JoinMulticast":   ucma.JoinMulticast,
	"WriteEvent":      ucma.WriteEvent,
	"OpenChannel":     ucma.OpenChannel,
	"CloseChannel":    ucma.CloseChannel,
}
