package hostd

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/ipc"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// A program of its own uses a host's NIC, with either way to connect; the host lists it while it is
// there.
func TestPrograms(t *testing.T) {
	if spec.EnvVerbs != ipc.EnvSocket {
		t.Errorf("programs are told by %s and look at %s", spec.EnvVerbs, ipc.EnvSocket)
	}
	for _, connect := range []string{spec.ConnectCM, spec.ConnectTCP} {
		t.Run(connect, func(t *testing.T) {
			rack := testRack()
			rack.Connect = connect
			dir, cn, _ := upAs(t, rack)
			c, err := ipc.Open(ipc.Config{Socket: spec.Paths{Dir: dir}.Verbs("cn0"), Name: "program"})
			if err != nil {
				t.Fatal(err)
			}
			ms, _, _ := rack.Host("ms0")
			res, err := perf.Run(c, c.Manager(), ms.IPv4, perf.Config{Test: perf.Verify, Service: memservice.Service}, nil)
			if err != nil || len(res.Checks) == 0 {
				t.Errorf("verify: %v, %+v", err, res)
			}
			if _, err := c.Share("kept", 4096, 0); err != nil {
				t.Error(err)
			}
			st := status(t, cn)
			if len(st.Programs) != 1 || st.Programs[0].Name != "program" || st.Programs[0].Posted == 0 || len(st.Shared) != 1 || st.Shared[0].Name != "kept" {
				t.Errorf("programs %+v, shared %+v", st.Programs, st.Shared)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			for end := time.Now().Add(10 * time.Second); len(status(t, cn).Programs) > 0; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("the program is still listed")
				}
			}
			if st := status(t, cn); len(st.Shared) != 1 || st.Shared[0].Open != 0 {
				t.Errorf("shared %+v", st.Shared)
			}
		})
	}
}

// A program that ends while it dials a peer that says nothing is gone at once, also if connections
// are made by TCP.
func TestAProgramThatDialsEnds(t *testing.T) {
	mute, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.MustParseAddrPort(fmt.Sprint("127.0.18.77:", rdmacm.DefaultPort))))
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	rack := testRack()
	rack.Connect = spec.ConnectTCP
	dir, cn, _ := upAs(t, rack)
	c, err := ipc.Open(ipc.Config{Socket: spec.Paths{Dir: dir}.Verbs("cn0"), Name: "program"})
	if err != nil {
		t.Fatal(err)
	}
	pd, err := c.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	cq, err := c.CreateCQ(4)
	if err != nil {
		t.Fatal(err)
	}
	qp, err := pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq})
	if err != nil {
		t.Fatal(err)
	}
	dialed := make(chan error, 1)
	go func() {
		_, err := c.Manager().Dial(qp, netip.MustParseAddr("127.0.18.77"), "x", rdmacm.Params{}, nil, clock.Never)
		dialed <- err
	}()
	peer, err := mute.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close() // until then the program waits for an answer
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := <-dialed; err == nil {
		t.Error("connected to nobody")
	}
	eventually(t, "the program is gone", func() bool { return len(status(t, cn).Programs) == 0 })
}
