package hostd

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/ipc"
	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A program of another process uses a host's NIC, with either kind of connection manager. The host
// lists the program while it is attached.
func TestPrograms(t *testing.T) {
	if rackfile.EnvVerbs != ipc.EnvSocket {
		t.Errorf("programs are told by %s and look at %s", rackfile.EnvVerbs, ipc.EnvSocket)
	}
	for _, connect := range []string{rackfile.ConnectCM, rackfile.ConnectTCP} {
		t.Run(connect, func(t *testing.T) {
			rack := testRack()
			rack.Connect = connect
			dir, cn, _ := upAs(t, rack)
			c, err := ipc.Open(ipc.Config{Socket: rackfile.Paths{Dir: dir}.Verbs("cn0"), Name: "program"})
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

// The quotas of the rack file apply to programs, and status reports them.
func TestQuotasOfTheRackFile(t *testing.T) {
	rack := testRack()
	rack.Hosts[0].Quota = rackfile.Quota{Programs: 1, PDs: 2, QPs: 3, DeviceMemory: 4096, Reserve: 50}
	dir, cn, _ := upAs(t, rack)
	c, err := ipc.Open(ipc.Config{Socket: rackfile.Paths{Dir: dir}.Verbs("cn0"), Name: "program"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := ipc.Open(ipc.Config{Socket: rackfile.Paths{Dir: dir}.Verbs("cn0")}); !errors.Is(err, verbs.ErrLimit) {
		t.Errorf("a second program: %v", err)
	}
	if d := c.Device(); d.MaxQP != 3 || d.MaxDM != 4096 {
		t.Errorf("the program may have %d queue pairs and %d bytes of device memory", d.MaxQP, d.MaxDM)
	}
	for range 2 {
		if _, err := c.AllocPD(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.AllocPD(); !errors.Is(err, verbs.ErrLimit) || !strings.Contains(err.Error(), "quota pds: 1 more; this program has 2 of 2") {
		t.Errorf("a third protection domain: %v", err)
	}
	if _, err := c.AllocDM(4096); err != nil {
		t.Error(err)
	}
	want := map[string]serve.QuotaStatus{
		"programs":     {Name: "programs", Quota: 1, Used: 1, Refused: 1},
		"pds":          {Name: "pds", Quota: 2, Used: 2, Pool: 512, Refused: 1},
		"qps":          {Name: "qps", Quota: 3, Pool: 8192},
		"deviceMemory": {Name: "deviceMemory", Quota: 4096, Used: 4096, Pool: deviceMemory - LockTable},
	}
	for _, q := range status(t, cn).Quotas {
		if w, ok := want[q.Name]; ok && q != w {
			t.Errorf("status says %+v, want %+v", q, w)
		}
		delete(want, q.Name)
	}
	if len(want) > 0 {
		t.Errorf("status lacks %v", want)
	}
}

// A program that ends while it dials a peer that does not answer is detached at once, also when
// connections are made by TCP.
func TestAProgramThatDialsEnds(t *testing.T) {
	mute, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(loopback(77), rdmacm.DefaultPort)))
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	rack := testRack()
	rack.Connect = rackfile.ConnectTCP
	dir, cn, _ := upAs(t, rack)
	c, err := ipc.Open(ipc.Config{Socket: rackfile.Paths{Dir: dir}.Verbs("cn0"), Name: "program"})
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
		_, err := c.Manager().Dial(qp, loopback(77), "x", rdmacm.Params{}, nil, clock.Never)
		dialed <- err
	}()
	peer, err := mute.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close() // peer never answers the dial
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := <-dialed; err == nil {
		t.Error("connected to no host")
	}
	eventually(t, "the program is gone", func() bool { return len(status(t, cn).Programs) == 0 })
}
