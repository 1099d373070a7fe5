package ipc_test

import (
	"encoding/binary"
	"encoding/json"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// fuzzOps are the operations by number.
var fuzzOps = []proto.Op{
	proto.OpHello, proto.OpAllocPD, proto.OpDeallocPD, proto.OpAlloc, proto.OpFree, proto.OpRegMR, proto.OpDeregMR, proto.OpAllocMW, proto.OpQueryMW,
	proto.OpDeallocMW, proto.OpAllocDM, proto.OpAccessDM, proto.OpAccessMR, proto.OpRegDM, proto.OpFreeDM, proto.OpCreateCQ, proto.OpDestroyCQ,
	proto.OpCreateSRQ, proto.OpQuerySRQ, proto.OpLimitSRQ, proto.OpResizeSRQ, proto.OpResizeCQ, proto.OpReregMR, proto.OpDestroySRQ, proto.OpCreateAH, proto.OpDestroyAH, proto.OpCreateQP, proto.OpQueryQP,
	proto.OpModifyQP, proto.OpDestroyQP, proto.OpListen, proto.OpUnlisten, proto.OpReject, proto.OpCloseManager, proto.OpClose, proto.OpModerateCQ,
	proto.OpUseRing, proto.OpDoorbell, proto.OpCountCQ,
}

var fuzzTransitions = []proto.Transition{proto.ToInit, proto.ToRTR, proto.ToRTS, proto.ToSQD, proto.ResumeRTS, proto.ToError, proto.ToReset, "?"}

// fuzzRequest makes the arguments of an operation from some numbers, most of them near the handles
// that exist.
func fuzzRequest(op proto.Op, n [4]uint32) any {
	h, small, length := n[0]%16, int(n[1]%64), int(int32(n[2]))
	switch op {
	case proto.OpHello:
		return proto.Hello{Version: small}
	case proto.OpAlloc, proto.OpAllocDM:
		return proto.Alloc{Length: length % (1 << 20)}
	case proto.OpRegMR, proto.OpRegDM:
		return proto.RegMR{PD: h, Memory: n[1] % 16, Offset: length % 9000, Length: int(int32(n[3])) % 9000, Access: verbs.Access(n[3])}
	case proto.OpAccessDM, proto.OpAccessMR:
		return proto.Access{H: h, Offset: length % 9000, Length: small, Write: n[3]&1 != 0, Data: make([]byte, small)}
	case proto.OpCreateCQ:
		return proto.CreateCQ{Depth: length % 4096}
	case proto.OpModerateCQ:
		return proto.ModerateCQ{H: h, Count: small - 2, Period: time.Duration(length)}
	case proto.OpUseRing:
		return proto.UseRing{H: h, Init: verbs.RingInit{Addr: uint64(n[1]), LKey: n[2], Blocks: length, Managed: n[3]&1 != 0, Prefetch: small - 2}}
	case proto.OpDoorbell:
		return proto.Doorbell{H: h, Limit: n[2]}
	case proto.OpCreateSRQ:
		return proto.CreateSRQ{PD: h, Init: verbs.SRQInit{MaxWR: length % 300, MaxSGE: small}}
	case proto.OpLimitSRQ, proto.OpResizeSRQ:
		return proto.Limit{H: h, N: length}
	case proto.OpCreateAH:
		return proto.CreateAH{PD: h, Attr: verbs.AHAttr{DestGID: verbs.GIDOf(ips[n[1]%2]), SourceGID: small % 3}}
	case proto.OpCreateQP:
		return proto.CreateQP{
			PD: h, Type: verbs.QPType(n[1] % 4), SendCQ: n[2] % 16, RecvCQ: n[3] % 16, SRQ: (n[3] >> 4) % 16 * (n[3] >> 8 & 1),
			MaxSendWR: int(n[3]>>9) % 200, MaxSGE: int(n[3]>>16) % 40, MaxInline: int(n[3]>>20) % 1200,
		}
	case proto.OpModifyQP:
		return proto.ModifyQP{
			H: h, To: fuzzTransitions[n[1]%8], Init: verbs.ToInit{Access: verbs.Access(n[2])},
			RTR: verbs.ToRTR{DestQPN: 0x123, DestGID: verbs.GIDOf(ips[n[3]%2]), PathMTU: verbs.MTU(256 << (n[2] % 6)), MaxDestRdAtomic: int(int8(n[3]))},
			RTS: verbs.ToRTS{Timeout: uint8(n[2]), RetryCount: uint8(n[3]), MaxRdAtomic: int(int8(n[2]))},
		}
	case proto.OpListen:
		return proto.Service{Name: string(rune('a' + small%4))}
	case proto.OpReject:
		return proto.Reject{H: h, Reason: "no"}
	case proto.OpAllocPD, proto.OpCloseManager, proto.OpClose:
		return proto.None{}
	default:
		return proto.Handle{H: h}
	}
}

// Any sequence of requests, with any arguments, is answered or ends the connection. Other programs
// are not disturbed, and no object is left.
func FuzzSession(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	all := make([]byte, 0, 17*len(fuzzOps))
	for i := range fuzzOps {
		all = append(all, append([]byte{byte(i)}, make([]byte, 16)...)...)
	}
	f.Add(all)
	f.Add([]byte("\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x0f\x00\x00\x00\x00\x00\x00\x00\x00\x10\x00\x00\x00\x00\x00\x00\x00\x17\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x02\x00\x00\x00\xff"))
	h := newHouse(f, 0, nil)
	v := h.victim(f)
	base := [2]int{h.objects(0).QPs, h.objects(0).MRs}
	f.Fuzz(func(t *testing.T, b []byte) {
		v.t = t
		a, err := attach(h.sockets[0])
		must(t, err)
		defer a.leave()
		for len(b) >= 17 {
			op := fuzzOps[int(b[0])%len(fuzzOps)]
			args := fuzzRequest(op, [4]uint32{
				binary.LittleEndian.Uint32(b[1:]), binary.LittleEndian.Uint32(b[5:]), binary.LittleEndian.Uint32(b[9:]), binary.LittleEndian.Uint32(b[13:]),
			})
			b = b[17:]
			_ = a.call(op, args, nil) // an error is an answer
		}
		if len(b) > 0 { // the objects that are left are destroyed in any order
			_, _ = a.conn.Write(b)
		}
		v.fine()
		a.leave()
		h.waitBack(t, base)
	})
}

// waitBack waits until the first NIC has as many queue pairs and regions as before.
func (h *house) waitBack(t testing.TB, want [2]int) {
	t.Helper()
	h.eventually(t, func() (any, bool) {
		o := h.objects(0)
		return o, o.QPs == want[0] && o.MRs == want[1]
	})
}

// With any bytes in the rings of an application, and any bells rung, the daemon goes on and other
// programs are not disturbed.
func FuzzRings(f *testing.F) {
	slot := make([]byte, ring.SendSlot(4, 256))
	ring.PutSend(slot, &verbs.SendWR{ID: 1, Op: verbs.OpWrite, Flags: verbs.Signalled | verbs.Inline, Data: []byte("data")}, 0)
	f.Add(uint64(1), uint64(0), uint64(0), uint32(1), slot, []byte{})
	f.Add(uint64(64), uint64(64), uint64(3), uint32(5), slot, slot)
	f.Add(uint64(65), uint64(1<<63), ^uint64(0), uint32(4095), slot, slot)
	h := newHouse(f, 0, nil)
	v := h.victim(f)
	f.Fuzz(func(t *testing.T, sendTail, recvTail, head uint64, bell uint32, sends, recvs []byte) {
		v.t = t
		a, err := attach(h.sockets[0])
		must(t, err)
		defer a.leave()
		must(t, a.equip())
		send := ring.NewQueue(a.qps, a.qp.Slots, a.qp.SendSlot)
		second := a.qps[ring.QueueLen(a.qp.Slots, a.qp.SendSlot):]
		recv := ring.NewQueue(second, a.qp.Slots, a.qp.RecvSlot)
		fill(a.qps[ring.HeaderLen:ring.QueueLen(a.qp.Slots, a.qp.SendSlot)], sends)
		fill(second[ring.HeaderLen:], recvs)
		send.Tail.Store(sendTail)
		recv.Tail.Store(recvTail)
		ring.NewQueue(a.cqs, a.cq.Slots, ring.WCSlot).Head.Store(head)
		fill(a.ctl.Memory()[ring.HeaderLen:ring.HeaderLen+ring.Accesses*ring.AccessSlot], recvs)
		a.ring(bell % ring.MaxBells)
		a.ring(a.qp.Bell)
		a.ring(a.cq.Bell)
		a.ring(0)
		v.fine()
	})
}

// fill fills a memory with repetitions of b.
func fill(to, b []byte) {
	for len(b) > 0 && len(to) > 0 {
		to = to[copy(to, b):]
	}
}

// Daemon and program can parse every message that the other one builds.
func TestMessagesAreStrict(t *testing.T) {
	for _, op := range fuzzOps {
		b, err := json.Marshal(proto.Request{ID: 1, Op: op, Args: json.RawMessage("{}")})
		must(t, err)
		var r proto.Request
		must(t, json.Unmarshal(b, &r))
		if r.Op != op || r.ID != 1 {
			t.Errorf("%s became %+v", op, r)
		}
	}
}
