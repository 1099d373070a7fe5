package interop_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// rpingPlan is the configuration of the peer "rping", as JSON on its standard input.
type rpingPlan struct {
	plan
	// To is the address of the server. Zero: the peer is the server, and writes a line when it
	// listens.
	To    netip.Addr `json:"to"`
	Count int        `json:"count"`
	// Leave is the number of pings from this side after which it ends the connection, even if the
	// other side goes on; 0: never.
	Leave int `json:"leave"`
	// Report is the number of pings after which the server writes a line; 0: never.
	Report int `json:"report"`
}

// rpingPort is the port of rping, as the name of a service.
const rpingPort = "7174"

// rpingLimit is how long each step of rping may take; the guest is slow.
const rpingLimit = 60 * time.Second

// rping runs inside a host of the rack: our side of librdmacm's rping, whose connection is made and
// ended by the connection manager. The client SENDs the address of its data; the server READs them
// and reports that. The client SENDs the address of a buffer; the server WRITEs the data there and
// reports that.
func rping(in io.Reader, out io.Writer) error {
	var p rpingPlan
	dec := json.NewDecoder(in)
	if err := dec.Decode(&p); err != nil {
		return err
	}
	go listen(io.MultiReader(dec.Buffered(), in), nil) // for the command to crash
	dev, err := openNIC(&p.plan)
	if err != nil {
		return err
	}
	defer dev.Close()
	ctx := dev.Context()
	cm, err := rdmacm.NewCM(rdmacm.CMConfig{Context: ctx})
	if err != nil {
		return err
	}
	r, err := newPinger(ctx, cm)
	if err != nil {
		return err
	}
	n := 0
	if p.To.IsValid() {
		n, err = r.client(p.To, p.Count)
	} else {
		n, err = r.server(out, p.Leave, p.Report)
	}
	if err != nil {
		return fmt.Errorf("after %d pings: %w", n, err)
	}
	_, err = fmt.Fprintf(out, "%d pings\n", n)
	return err
}

// pinger is one end of rping.
type pinger struct {
	rt           verbs.Runtime
	cm           *rdmacm.CM
	qp           verbs.QP
	sends, recvs verbs.CQ
	mr           verbs.MR // infoLen bytes each of received and sent info, then the data, then the returned data
}

// patientTimeout is the code of the local ACK timeout that rdma_cm uses as well: 2.1 s.
const patientTimeout = 19

const (
	infoLen  = 16 // address 8, key 4, length 4
	inInfo   = 0
	outInfo  = infoLen
	dataAt   = 2 * infoLen
	pingSize = 64 // bytes of data in a ping of our client
	maxPing  = 64 << 10
	backAt   = dataAt + maxPing
)

func newPinger(ctx verbs.Context, cm *rdmacm.CM) (*pinger, error) {
	r := &pinger{rt: ctx.Runtime(), cm: cm}
	pd, err := ctx.AllocPD()
	if err != nil {
		return nil, err
	}
	var errs [3]error
	r.sends, errs[0] = ctx.CreateCQ(8)
	r.recvs, errs[1] = ctx.CreateCQ(8)
	r.mr, errs[2] = pd.RegMR(nil, backAt+maxPing, verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	r.qp, err = pd.CreateQP(verbs.QPInit{SendCQ: r.sends, RecvCQ: r.recvs})
	return r, err
}

// await waits for one completion. errEnded is the flush at the end of the connection.
func (r *pinger) await(cq verbs.CQ) error {
	if err := cq.Wait(r.rt.Now().Add(rpingLimit)); err != nil {
		return err
	}
	var wc [1]verbs.WC
	if _, err := cq.Poll(wc[:]); err != nil {
		return err
	}
	switch wc[0].Status {
	case verbs.Success:
		return nil
	case verbs.WRFlushErr:
		return errEnded
	case verbs.RemAccessErr, verbs.RemOpErr: // of a READ or WRITE, of a SEND into a receive buffer
		return fmt.Errorf("completion %+v: %w", wc[0], errRefused)
	}
	return fmt.Errorf("completion %+v", wc[0])
}

var (
	errEnded   = errors.New("the connection has ended")
	errRefused = errors.New("the memory is not the peer's any more")
)

// recv posts the receive for the peer's next message.
func (r *pinger) recv() error {
	return r.qp.PostRecv(verbs.RecvWR{SGL: []verbs.SGE{r.mr.SGE(inInfo, infoLen)}})
}

// do posts one request and waits for its completion.
func (r *pinger) do(wr verbs.SendWR) error {
	wr.Flags |= verbs.Signalled
	if err := r.qp.PostSend(wr); err != nil {
		return err
	}
	return r.await(r.sends)
}

// send sends the peer the address of a piece of memory; some steps use it only to give the peer its
// turn.
func (r *pinger) send(off, n int) error {
	b := binary.BigEndian.AppendUint64(nil, r.mr.Addr()+uint64(off))
	b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, r.mr.RKey()), uint32(n))
	if err := r.mr.WriteAt(b, outInfo); err != nil {
		return err
	}
	return r.do(verbs.SendWR{Op: verbs.OpSend, SGL: []verbs.SGE{r.mr.SGE(outInfo, infoLen)}})
}

// info waits for the peer's message, with the next receive posted.
func (r *pinger) info() (wr verbs.SendWR, n int, err error) {
	if err := r.await(r.recvs); err != nil {
		return wr, 0, err
	}
	var b [infoLen]byte
	if err := errors.Join(r.mr.ReadAt(b[:], inInfo), r.recv()); err != nil {
		return wr, 0, err
	}
	wr.RemoteAddr, wr.RKey, n = binary.BigEndian.Uint64(b[:]), binary.BigEndian.Uint32(b[8:]), int(binary.BigEndian.Uint32(b[12:]))
	if n > maxPing {
		return wr, 0, fmt.Errorf("a ping of %d bytes", n)
	}
	return wr, n, nil
}

// server serves one client until it disconnects, and counts its pings.
func (r *pinger) server(out io.Writer, leave, report int) (pings int, err error) {
	l, err := r.cm.Listen(rpingPort)
	if err != nil {
		return 0, err
	}
	fmt.Fprintln(out, "listening")
	req, err := l.Accept(r.rt.Now().Add(rpingLimit))
	if err != nil {
		return 0, err
	}
	if err := req.Accept(r.qp, rdmacm.Params{Timeout: patientTimeout}, nil, r.rt.Now().Add(rpingLimit)); err != nil {
		return 0, err
	}
	for err = r.recv(); err == nil; pings++ {
		if report > 0 && pings == report {
			fmt.Fprintln(out, "busy")
		}
		if leave > 0 && pings == leave {
			return pings, r.cm.Disconnect(r.qp, r.rt.Now().Add(rpingLimit))
		}
		err = r.serve(pings)
		// A kernel takes the memory of a killed program away before it ends the connection.
		killed := report > 0 && pings >= report && errors.Is(err, errRefused)
		if errors.Is(err, errEnded) || killed {
			return pings, r.cm.AwaitDisconnect(r.qp, r.rt.Now().Add(rpingLimit))
		}
	}
	return pings, err
}

// serve answers one ping.
func (r *pinger) serve(ping int) error {
	wr, n, err := r.info()
	if err != nil {
		return err
	}
	wr.Op, wr.SGL = verbs.OpRead, []verbs.SGE{r.mr.SGE(dataAt, n)}
	if err := r.do(wr); err != nil {
		return err
	}
	data := make([]byte, n)
	if err := r.mr.ReadAt(data, dataAt); err != nil {
		return err
	}
	if want := fmt.Sprintf("rdma-ping-%d: ", ping); !bytes.HasPrefix(data, []byte(want)) {
		return fmt.Errorf("read %q, want %q", data, want)
	}
	if err := r.send(dataAt, n); err != nil {
		return err
	}
	if wr, n, err = r.info(); err != nil {
		return err
	}
	wr.Op, wr.SGL = verbs.OpWrite, []verbs.SGE{r.mr.SGE(dataAt, n)}
	if err := r.do(wr); err != nil {
		return err
	}
	return r.send(dataAt, n)
}

// client sends pings and ends the connection.
func (r *pinger) client(to netip.Addr, count int) (pings int, err error) {
	if _, err := r.cm.Dial(r.qp, to, rpingPort, rdmacm.Params{Timeout: patientTimeout, PathMTU: verbs.MTU1024, RdAtomic: 1}, nil, r.rt.Now().Add(rpingLimit)); err != nil {
		return 0, err
	}
	for err = r.recv(); err == nil && pings < count; pings++ {
		err = r.ping(pings)
	}
	return pings, errors.Join(err, r.cm.Disconnect(r.qp, r.rt.Now().Add(rpingLimit)))
}

// ping runs one round.
func (r *pinger) ping(n int) error {
	data := make([]byte, pingSize)
	copy(data, fmt.Sprintf("rdma-ping-%d: abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz", n))
	data[pingSize-1] = 0
	if err := errors.Join(r.mr.WriteAt(data, dataAt), r.mr.WriteAt(make([]byte, pingSize), backAt)); err != nil {
		return err
	}
	for _, at := range []int{dataAt, backAt} {
		if err := r.send(at, pingSize); err != nil {
			return err
		}
		if _, _, err := r.info(); err != nil {
			return err
		}
	}
	back := make([]byte, pingSize)
	if err := r.mr.ReadAt(back, backAt); err != nil {
		return err
	}
	if !bytes.Equal(back, data) {
		return fmt.Errorf("%q comes back as %q", data, back)
	}
	return nil
}
