// Command beyond writes eight bytes to a memory server, and then eight behind the end of its region, which the server's NIC refuses.
package main

import (
	"fmt"
	"log"
	"net/netip"
	"os"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/ipc"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

func main() {
	nic := must(ipc.Open(ipc.Config{})) // the variable RDMALAB_VERBS names the NIC's socket
	pd := must(nic.AllocPD())
	mr := must(pd.RegMR(nil, 4096, verbs.LocalWrite))
	cq := must(nic.CreateCQ(16))
	qp := must(pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq}))
	far := must(memservice.Dial(nic.Manager(), qp, netip.MustParseAddr(os.Args[1]), rdmacm.Params{}, clock.Never))
	end := far.Addr + uint64(far.Len)
	for i, to := range []uint64{end - 8, end, end - 16} { // the last 8 bytes, 8 behind them, and 8 in front of them
		check(qp.PostSend(verbs.SendWR{ID: 100 + uint64(i), Op: verbs.OpWrite, Flags: verbs.Signalled, SGL: []verbs.SGE{mr.SGE(0, 8)}, RemoteAddr: to, RKey: far.RKey}))
	}
	for done := 0; done < 3; {
		check(cq.Wait(clock.Never))
		wc := make([]verbs.WC, 3)
		for _, c := range wc[:must(cq.Poll(wc))] {
			fmt.Printf("wr_id %d: %v, vendor_err %#x\n", c.ID, c.Status, c.VendorErr)
			done++
		}
	}
	check(nic.Close())
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
