// Command client writes to passive memory over the NIC of the host that it runs on, and reads it
// back.
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

	text := "hello, rack"
	check(mr.WriteAt([]byte(text), 0))
	do := func(op verbs.WROpcode, off int) {
		check(qp.PostSend(verbs.SendWR{Op: op, Flags: verbs.Signalled, SGL: []verbs.SGE{mr.SGE(off, len(text))}, RemoteAddr: far.Addr, RKey: far.RKey}))
		check(cq.Wait(clock.Never))
		wc := make([]verbs.WC, 1)
		if must(cq.Poll(wc)); wc[0].Status != verbs.Success {
			log.Fatalf("%v: %v", op, wc[0].Status)
		}
	}
	do(verbs.OpWrite, 0)  // the text goes from mr to the server's memory
	do(verbs.OpRead, 512) // the text comes back from there, to offset 512 of mr
	got := make([]byte, len(text))
	check(mr.ReadAt(got, 512))
	fmt.Printf("%v has %q at %#x\n", os.Args[1], got, far.Addr)
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
