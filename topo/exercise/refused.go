package exercise

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/ipc"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// refusedWrite posts a WRITE with a wrong R_Key. The learner finds the reason and the right key, and the
// check posts the WRITE again with that key.
var refusedWrite = Exercise{Name: "refused-write", Answers: []string{"reason", "rkey"}, prepare: prepareRefused, check: checkRefused}

// opPatience bounds a connection and an operation of an exercise.
const opPatience = 10 * time.Second

func prepareRefused(ctx context.Context, l *Lab) error {
	// Another index of the table of keys: the server's NIC has no region there.
	wrong := uint32(1+l.random.IntN(200)) << 16
	wc, key, err := l.write(ctx, func(right uint32) uint32 { return right ^ wrong })
	switch {
	case err != nil:
		return err
	case wc.Status != verbs.RemAccessErr:
		return fmt.Errorf("a WRITE with R_Key %#x ended with %v and not with a remote access error; prepare the exercise again", key, wc.Status)
	}
	l.state.Key, l.state.Reason = key, wc.VendorErr
	return nil
}

func checkRefused(ctx context.Context, l *Lab, r *Report) error {
	r.number("reason", int64(l.state.Reason), "it is the number behind vendor_err in the story of the queue pair")
	n, ok := r.parse("rkey")
	if !ok {
		return nil
	}
	if n < 0 || n > 1<<32-1 {
		r.add(false, "", fmt.Sprintf("rkey=%#x is no R_Key: it has 32 bits", n))
		return nil
	}
	wc, _, err := l.write(ctx, func(uint32) uint32 { return uint32(n) })
	if err != nil {
		return err
	}
	r.add(wc.Status == verbs.Success, fmt.Sprintf("a WRITE to %s with R_Key %#x succeeds", l.Server, n),
		fmt.Sprintf("a WRITE to %s with R_Key %#x fails: %v; look for the region whose owner is the host", l.Server, n, wc.Status))
	return nil
}

// write connects to the server's memory service from the client's NIC, and writes 8 bytes of zeros to the
// last word of its region, which belongs to tests, with the R_Key that key makes of the right one. It
// returns the completion and the R_Key.
func (l *Lab) write(ctx context.Context, key func(right uint32) uint32) (wc verbs.WC, rkey uint32, err error) {
	nic, err := ipc.Open(ipc.Config{Socket: l.Rack.Paths.Verbs(l.Client), Name: "exercise", Patience: opPatience})
	if err != nil {
		return wc, 0, err
	}
	defer context.AfterFunc(ctx, func() { _ = nic.Close() })() // ends what waits
	defer func() { err = errors.Join(err, nic.Close()) }()     // frees all objects
	deadline := nic.Runtime().Now().Add(opPatience)
	pd, err := nic.AllocPD()
	if err != nil {
		return wc, 0, err
	}
	mr, err := pd.RegMR(nil, wordSize, verbs.LocalWrite)
	if err != nil {
		return wc, 0, err
	}
	cq, err := nic.CreateCQ(4)
	if err != nil {
		return wc, 0, err
	}
	qp, err := pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq})
	if err != nil {
		return wc, 0, err
	}
	far, err := memservice.Dial(nic.Manager(), qp, l.address(l.Server), rdmacm.Params{}, deadline)
	if err != nil {
		return wc, 0, err
	}
	rkey = key(far.RKey)
	err = qp.PostSend(verbs.SendWR{
		Op: verbs.OpWrite, Flags: verbs.Signalled, SGL: []verbs.SGE{mr.SGE(0, wordSize)},
		RemoteAddr: far.Addr + uint64(far.Len-wordSize)&^(wordSize-1), RKey: rkey,
	})
	if err != nil {
		return wc, rkey, err
	}
	return oneCompletion(cq, deadline, rkey)
}

// wordSize is the size of a word in bytes.
const wordSize = 8

func oneCompletion(cq verbs.CQ, deadline clock.Time, rkey uint32) (verbs.WC, uint32, error) {
	var wcs [1]verbs.WC
	if err := cq.Wait(deadline); err != nil {
		return verbs.WC{}, rkey, err
	}
	n, err := cq.Poll(wcs[:])
	if err == nil && n != 1 {
		err = errors.New("no completion of the WRITE")
	}
	return wcs[0], rkey, err
}

// address returns the IPv4 address of a host.
func (l *Lab) address(host string) netip.Addr {
	h, _, _ := l.Rack.Spec.Host(host)
	return h.IPv4
}
