package transport

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// BenchmarkServices measures a SEND of 64 bytes and its receive by transport service, on a wire
// without codec. Compared with BenchmarkExchange/send64 it shows the cost of acknowledgements,
// datagrams and shared receives.
func BenchmarkServices(bm *testing.B) {
	for name, c := range map[string]struct {
		of     verbs.QPType
		shared bool
	}{"rc": {verbs.RC, false}, "rc-srq": {verbs.RC, true}, "uc": {verbs.UC, false}, "uc-srq": {verbs.UC, true}, "ud": {verbs.UD, false}, "ud-srq": {verbs.UD, true}} {
		bm.Run(name, func(bm *testing.B) {
			a := newSide(bm, "a", 1, 1<<12, Config{QPN: 0x11, Type: c.of})
			b := newSide(bm, "b", 2, 1<<12, Config{QPN: 0x12, Type: c.of, CoalesceAcks: true})
			postRecv := func(wr *verbs.RecvWR) error { return b.qp.PostRecv(wr) }
			if c.shared {
				postRecv = shareReceives(bm, b, 128).PostRecv
			}
			connect(bm, a, b, defaultLink)
			wr := datagramTo(b, a, 64)
			wr.RemoteQKey = 0 // the Q_Key that connect leaves
			recv := verbs.RecvWR{SGL: []verbs.SGE{b.sge(0, 4096)}}
			wc, ip := make([]verbs.WC, 4), make([]byte, 20)
			bm.ReportAllocs()
			for bm.Loop() {
				if postRecv(&recv) != nil || a.qp.PostSend(0, &wr, &a.out) != nil {
					bm.Fatal("post")
				}
				a.file()
				for i := range a.out.Tx {
					if c.of == verbs.UD {
						b.qp.HandleDatagram(0, &a.out.Tx[i].Packet, ip, &b.out)
					} else {
						b.qp.Handle(0, &a.out.Tx[i].Packet, &b.out)
					}
				}
				a.out.Reset()
				b.qp.FlushAcks(0, &b.out)
				b.deliver(0, a)
				a.file()
				if a.scq.Poll(wc) != 1 || b.rcq.Poll(wc) != 1 {
					bm.Fatal("a completion is missing")
				}
			}
		})
	}
}
