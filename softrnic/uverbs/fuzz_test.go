package uverbs

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// The structs have the sizes that the kernel's headers give them, without the pointer for the
// answer.
func TestSizes(t *testing.T) {
	for name, c := range map[string]struct {
		v    any
		want int
	}{
		"query_device_resp": {Device{}, 176}, "ex_query_device_resp": {ExDevice{}, 304 - 176}, "query_port_resp": {Port{}, 40},
		"reg_mr": {RegMRArgs{}, 40 - 8}, "reg_mr_resp": {MR{}, 12}, "rereg_mr": {ReregMRArgs{}, 48 - 8}, "rereg_mr_resp": {Rereged{}, 8}, "create_ah": {AHArgs{}, 56 - 8}, "create_cq": {CQArgs{}, 32 - 8},
		"ex_create_cq": {ExCQArgs{}, 32}, "create_cq_resp": {CQ{}, 8}, "mminfo": {Area{}, 16}, "create_qp": {QPArgs{}, 56 - 8},
		"ex_create_qp": {ExQPArgs{}, 64}, "create_qp_resp": {QP{}, 32}, "qp_dest": {QPDest{}, 32}, "modify_qp": {ModifyQPArgs{}, 112},
		"query_qp": {QueryQPArgs{}, 8}, "query_qp_resp": {QPAttr{}, 128}, "create_srq": {SRQArgs{}, 32 - 8}, "create_srq_resp": {SRQ{}, 16},
		"modify_srq": {ModifySRQArgs{}, 16}, "query_srq_resp": {SRQAttr{}, 16}, "destroy_cq_resp": {CQReported{}, 8}, "ex_modify_cq": {ModifyCQArgs{}, 16},
		"open_xrcd": {XRCDArgs{}, 16 - 8}, "create_xsrq": {XSRQArgs{}, 48 - 8}, "open_qp": {OpenQPArgs{}, 32 - 8},
	} {
		if got := len(Encode(c.v)); got != c.want {
			t.Errorf("%s has %d bytes, want %d", name, got, c.want)
		}
	}
}

// The service level of a completion says which IP header a datagram had; UCX drops datagrams with
// another one than that of its addresses. Other completions have none.
func TestServiceLevel(t *testing.T) {
	for name, c := range map[string]struct {
		flags verbs.WCFlags
		want  byte
	}{"a connection": {verbs.WithImm, 0}, "IPv6": {verbs.WithGRH, 1}, "IPv4": {verbs.WithGRH | verbs.OverIPv4, 2}} {
		slot := make([]byte, WCSlot)
		PutWC(slot, &verbs.WC{Flags: c.flags})
		if slot[wcSL] != c.want {
			t.Errorf("%s: service level %d, want %d", name, slot[wcSL], c.want)
		}
	}
}

// ParseCommand refuses any bytes, or returns a command whose arguments lie within them.
func FuzzCommand(f *testing.F) {
	f.Add(append(make([]byte, PrefixLen), Encode(uint32(CreateQP), uint32(0), uint64(0), QPArgs{})...))
	f.Add(append(make([]byte, PrefixLen), Encode(uint32(CreateCQ|Extended), uint32(0), [2]uint64{}, ExCQArgs{})...))
	f.Add(append(make([]byte, PrefixLen), Encode(uint32(ModifyQP), uint32(0), ModifyQPArgs{})...))
	f.Add(append(make([]byte, PrefixLen), Encode(uint32(CopyToDM), uint32(0), uint64(0), DMPlace{Length: 8}, uint64(1))...))
	f.Add(append(make([]byte, PrefixLen), Encode(uint32(OpenXRCD), uint32(0), uint64(0), XRCDArgs{FD: -1})...))
	f.Add(append(make([]byte, PrefixLen), Encode(uint32(CreateXSRQ), uint32(0), uint64(0), XSRQArgs{Type: SRQXRC})...))
	f.Add(append(make([]byte, PrefixLen), Encode(uint32(OpenQP), uint32(0), uint64(0), OpenQPArgs{Type: TypeXRCTarget})...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, ok := ParseHello(b); ok && len(h.Name) > HelloLen {
			t.Error("a name that is longer than the message")
		}
		c, err := ParseCommand(b)
		if err != nil {
			return
		}
		if len(c.Args) > len(b)-PrefixLen-headerLen {
			t.Fatalf("%d bytes of arguments in %d", len(c.Args), len(b))
		}
		if a, ok := Decode[ModifyQPArgs](c); ok && len(c.Args) < len(Encode(a)) {
			t.Error("arguments out of nothing")
		}
		if a, data, ok := DecodeWith[DMPlace](c); ok && len(data)+len(Encode(a)) != len(c.Args) {
			t.Errorf("%d bytes behind the arguments, of %d", len(data), len(c.Args))
		}
	})
}

// A program may write any bytes into a ring, and any positions of producer and consumer. The daemon
// takes each entry as a work request within its bounds, or refuses it; it reads no place outside
// the ring.
func FuzzEntries(f *testing.F) {
	f.Add(make([]byte, 256), uint32(3), uint32(1<<31))
	f.Add(Encode(uint64(1), uint32(0), uint32(2), uint32(8), [41]uint32{}, uint32(9), [5]uint32{}), uint32(0), uint32(9))
	f.Fuzz(func(t *testing.T, b []byte, producer, consumer uint32) {
		const n, sges = 5, 3
		room := make([]byte, RingLen(n, SendSlot(sges, 0)))
		r := NewRing(room, n, SendSlot(sges, 0))
		for i := range uint32(r.Cap() + 1) {
			copy(r.Slot(i), b)
		}
		r.SetProducer(producer)
		r.SetConsumer(consumer)
		scratch := make([]byte, len(r.Slot(0)))
		var wr verbs.SendWR
		var pieces [sges]verbs.SGE
		i := r.Consumer()
		for range r.Between(i, r.Producer()) {
			if _, ok := Send(r.Slot(i), scratch, &wr, pieces[:]); ok && (len(wr.SGL) > sges || len(wr.Data) > len(scratch)) {
				t.Fatalf("%+v", wr)
			}
			if _, k, ok := Recv(r.Slot(i), scratch, pieces[:]); ok && k > sges {
				t.Fatalf("%d pieces", k)
			}
			i++
		}
	})
}
