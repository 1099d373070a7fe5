package endure

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc"
	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// wildVariable has the seed of a wild program; serverVariable has the address of a memory server.
const wildVariable, serverVariable = "RDMALAB_ENDURE_WILD", "RDMALAB_ENDURE_SERVER"

// wild is the main function of a program that uses a NIC badly. It makes objects until they are
// refused, posts requests with wrong keys, sends messages that are none, scribbles over the pages
// that it shares with the daemon, or begins a transfer with a memory server. Then it dies, mostly in
// the middle of that.
func wild(seed string) {
	n, err := strconv.ParseUint(seed, 10, 64)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	r := rand.New(rand.NewPCG(n, 7))
	if r.IntN(4) != 0 {
		time.AfterFunc(time.Duration(5+r.IntN(600))*time.Millisecond, func() { _ = unix.Kill(os.Getpid(), unix.SIGKILL) })
	}
	for range 1 + r.IntN(4) {
		switch r.IntN(5) {
		case 0:
			err = greedy(r)
		case 1:
			err = wrongKeys(r)
		case 2:
			err = garbage(r)
		case 3:
			err = scribble(r)
		case 4:
			err = transfer()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err) // the NIC may refuse anything
		}
	}
	os.Exit(0)
}

// greedy makes objects until the NIC refuses them, and leaves them.
func greedy(r *rand.Rand) error {
	ctx, err := ipc.Open(ipc.Config{})
	if err != nil {
		return err
	}
	for range 200 {
		pd, err := ctx.AllocPD()
		if err != nil {
			return err
		}
		cq, err := ctx.CreateCQ(1 + r.IntN(4000))
		if err != nil {
			return err
		}
		if _, err = pd.RegMR(nil, 1+r.IntN(1<<20), verbs.LocalWrite|verbs.RemoteRights); err != nil {
			return err
		}
		if _, err = pd.CreateQP(verbs.QPInit{Type: verbs.RC, SendCQ: cq, RecvCQ: cq}); err != nil {
			return err
		}
	}
	return nil
}

// wrongKeys connects a queue pair to itself and posts requests with random keys and addresses.
func wrongKeys(r *rand.Rand) error {
	ctx, err := ipc.Open(ipc.Config{})
	if err != nil {
		return err
	}
	pd, err := ctx.AllocPD()
	if err != nil {
		return err
	}
	cq, err := ctx.CreateCQ(64)
	if err != nil {
		return err
	}
	mr, err := pd.RegMR(nil, 1<<16, verbs.LocalWrite|verbs.RemoteRights)
	if err != nil {
		return err
	}
	for range 50 {
		q, err := pd.CreateQP(verbs.QPInit{Type: verbs.RC, SendCQ: cq, RecvCQ: cq, SignalAll: true})
		if err != nil {
			return err
		}
		if err := toItself(ctx, q); err != nil {
			return err
		}
		for range r.IntN(40) {
			w := verbs.SendWR{
				Op: []verbs.WROpcode{verbs.OpSend, verbs.OpWrite, verbs.OpRead, verbs.OpFetchAdd}[r.IntN(4)], SGL: []verbs.SGE{mr.SGE(0, 8<<r.IntN(14))},
				RemoteAddr: mr.Addr() + uint64(r.IntN(1<<17))&^7, RKey: mr.RKey(),
			}
			if r.IntN(8) == 0 {
				w.RKey, w.SGL[0].LKey = r.Uint32(), r.Uint32()
			}
			if q.PostSend(w) != nil {
				break
			}
		}
		if r.IntN(2) == 0 {
			_ = q.Destroy() // with requests in flight
		}
		_, _ = cq.Poll(make([]verbs.WC, 8))
	}
	return nil
}

func toItself(ctx verbs.Context, q verbs.QP) error {
	const rights = verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic
	err := q.ToInit(verbs.ToInit{Access: rights})
	if err == nil {
		err = q.ToRTR(verbs.ToRTR{DestQPN: q.QPN(), DestGID: ctx.Device().GIDs[0], PathMTU: verbs.MTU1024})
	}
	if err == nil {
		err = q.ToRTS(verbs.ToRTS{Timeout: 14, RetryCount: 7})
	}
	return err
}

// dial opens the daemon's socket without package ipc. With hello it returns the control page, too.
func dial(hello bool) (*net.UnixConn, []byte, error) {
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: os.Getenv(ipc.EnvSocket), Net: "unixpacket"})
	if err != nil || !hello {
		return conn, nil, err
	}
	args, err := json.Marshal(proto.Hello{Version: proto.Version, Name: "wild"})
	if err != nil {
		return conn, nil, err
	}
	msg, err := json.Marshal(proto.Request{ID: 1, Op: proto.OpHello, Args: args})
	if err != nil {
		return conn, nil, err
	}
	if _, err = conn.Write(msg); err != nil {
		return conn, nil, err
	}
	b, oob := make([]byte, proto.MaxMessage), make([]byte, unix.CmsgSpace(16))
	_, n, _, _, err := conn.ReadMsgUnix(b, oob)
	if err != nil {
		return conn, nil, err
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(msgs) == 0 {
		return conn, nil, fmt.Errorf("no files: %w", err)
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil {
		return conn, nil, err
	}
	page, err := ring.Map(fds[0], ring.ControlLen)
	return conn, page, err
}

// garbage sends messages of random bytes, and requests with random arguments.
func garbage(r *rand.Rand) error {
	conn, _, err := dial(r.IntN(2) == 0)
	if err != nil {
		return err
	}
	for i := range 50 {
		b := make([]byte, 1+r.IntN(proto.MaxMessage))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		if i%2 == 0 {
			b = fmt.Appendf(nil, `{"id":%d,"op":%d,"args":{"h":%d,"pd":%d,"length":%d}}`, i, r.IntN(60), r.IntN(9), r.IntN(9), r.Int64())
		}
		if _, err := conn.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// scribble writes random bytes over the page that the daemon reads.
func scribble(r *rand.Rand) error {
	_, page, err := dial(true)
	if err != nil {
		return err
	}
	for range 1 << 18 {
		page[r.IntN(len(page))] = byte(r.Uint32())
	}
	return nil
}

// transfer writes to the memory server and verifies it.
func transfer() error {
	to, err := netip.ParseAddr(os.Getenv(serverVariable))
	if err != nil {
		return err
	}
	ctx, err := ipc.Open(ipc.Config{})
	if err != nil {
		return err
	}
	cfg := perf.Config{Test: "write_bw", Service: memservice.Service, Size: 64 << 10, Iters: 500}
	_, err = perf.Run(ctx, ctx.Manager(), to, cfg, func(perf.Progress) {})
	return err
}
