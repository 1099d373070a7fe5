package ipc_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// reader is a connection for READs of 8 bytes.
type reader struct {
	cq verbs.CQ
	qp verbs.QP
	wr []verbs.SendWR

	remote verbs.MR // that the work requests read
}

// newReader connects a queue pair of one context with one of another context, which may belong to
// the same NIC.
func newReader(from, to verbs.Context) (*reader, error) {
	var made []error
	note := func(err error) { made = append(made, err) }
	side := func(ctx verbs.Context) (verbs.CQ, verbs.MR, verbs.QP) {
		pd, err := ctx.AllocPD()
		note(err)
		cq, err := ctx.CreateCQ(64)
		note(err)
		mr, err := pd.RegMR(nil, 4096, verbs.LocalWrite|verbs.RemoteRead|verbs.RemoteWrite)
		note(err)
		qp, err := pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq})
		note(err)
		return cq, mr, qp
	}
	cq, local, qa := side(from)
	_, remote, qb := side(to)
	for _, x := range []struct {
		own, peer verbs.QP
		to        verbs.Context
	}{{qa, qb, to}, {qb, qa, from}} {
		note(x.own.ToInit(verbs.ToInit{Access: verbs.RemoteRead | verbs.RemoteWrite}))
		note(x.own.ToRTR(verbs.ToRTR{DestQPN: x.peer.QPN(), DestGID: x.to.Device().GIDs[0], PathMTU: verbs.MTU1024}))
		note(x.own.ToRTS(verbs.ToRTS{Timeout: 14, RetryCount: 7, RNRRetry: 7}))
	}
	for _, err := range made {
		if err != nil {
			return nil, err
		}
	}
	return &reader{cq: cq, qp: qa, remote: remote, wr: []verbs.SendWR{{
		Op: verbs.OpRead, Flags: verbs.Signalled, SGL: []verbs.SGE{local.SGE(0, 8)}, RemoteAddr: remote.Addr(), RKey: remote.RKey(),
	}}}, nil
}

// read runs one READ and polls for its completion.
func (r *reader) read() error {
	if err := r.qp.PostSend(r.wr...); err != nil {
		return err
	}
	var wc [1]verbs.WC
	for {
		n, err := r.cq.Poll(wc[:])
		switch {
		case err != nil:
			return err
		case n == 1 && wc[0].Status != verbs.Success:
			return fmt.Errorf("READ: %v", wc[0].Status)
		case n == 1:
			return nil
		}
	}
}

// median returns the median duration of n READs.
func (r *reader) median(n int) (time.Duration, error) {
	took := make([]time.Duration, n)
	for i := range took {
		start := time.Now()
		if err := r.read(); err != nil {
			return 0, err
		}
		took[i] = time.Since(start)
	}
	slices.Sort(took)
	return took[n/2], nil
}

// pin keeps this process on one processor; it returns false if it may not.
func pin(cpu int) bool {
	var set unix.CPUSet
	set.Set(cpu)
	tasks, err := os.ReadDir("/proc/self/task")
	for _, t := range tasks {
		if id, aerr := strconv.Atoi(t.Name()); aerr == nil {
			err = errors.Join(err, unix.SchedSetaffinity(id, &set))
		}
	}
	return err == nil
}

// envCPU is the variable with the processor of the second process.
const envCPU = "IPC_TEST_CPU"

// benchTargets are the NICs that the READs go to.
var benchTargets = map[string]int{"itself": 0, "cable": 1}

// benchProgram is the second process of BenchmarkRead: for each line with a target it writes the
// median duration of READs.
func benchProgram() error {
	if cpu, err := strconv.Atoi(os.Getenv(envCPU)); err == nil {
		pin(cpu)
	}
	sockets := socketsOfProgram()
	var ctx [2]*ipc.Context
	readers := map[string]*reader{}
	for i := range ctx {
		var err error
		if ctx[i], err = ipc.Open(ipc.Config{Socket: sockets[i]}); err != nil {
			return err
		}
		defer ctx[i].Close()
	}
	for name, nic := range benchTargets {
		var err error
		if readers[name], err = newReader(ctx[0], ctx[nic]); err != nil {
			return err
		}
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		name, n := "", 0
		if _, err := fmt.Sscan(in.Text(), &name, &n); err != nil {
			return err
		}
		d, err := readers[name].median(n)
		if err != nil {
			return err
		}
		fmt.Println(int64(d))
	}
	return nil
}

// BenchmarkRead compares the median duration of 8-byte READs of another process with that of READs
// of the NIC's own process, in turns: "itself" goes to the same NIC, "cable" to another one of this
// process. Both ends poll. "apart" gives each process a processor; "together" lets them share one,
// which shows the cost of a switch between them.
func BenchmarkRead(b *testing.B) {
	if runtime.NumCPU() < 2 {
		b.Skip("needs two processors")
	}
	for name, nic := range benchTargets {
		b.Run(name+"/apart", func(b *testing.B) { benchmarkRead(b, name, nic, 0, 1) })
		b.Run(name+"/together", func(b *testing.B) { benchmarkRead(b, name, nic, 0, 0) })
	}
}

func benchmarkRead(b *testing.B, name string, nic, daemon, program int) {
	h := newHouse(b, 0, nil)
	inside, err := newReader(h.dev[0].Context(), h.dev[nic].Context())
	must(b, err)
	cmd := h.program(b, "bench")
	cmd.Env = append(cmd.Env, envCPU+"="+strconv.Itoa(program))
	to, err := cmd.StdinPipe()
	must(b, err)
	from, err := cmd.StdoutPipe()
	must(b, err)
	cmd.Stderr = os.Stderr
	must(b, cmd.Start())
	if !pin(daemon) {
		b.Skip("needs the right to choose processors")
	}
	// The same as that of a host's daemon, which starts on its own processor.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	answers := bufio.NewReader(from)
	outside := func(n int) time.Duration {
		_, err := fmt.Fprintln(to, name, n)
		must(b, err)
		line, err := answers.ReadString('\n')
		must(b, err)
		var d int64
		_, err = fmt.Sscan(strings.TrimSpace(line), &d)
		must(b, err)
		return time.Duration(d)
	}
	const batch = 2000
	var in, out []time.Duration
	outside(batch) // the caches are warm
	before := h.servers[0].Clients()[0]
	for b.Loop() {
		d, err := inside.median(batch)
		must(b, err)
		in = append(in, d)
		out = append(out, outside(batch))
	}
	slices.Sort(in)
	slices.Sort(out)
	after := h.servers[0].Clients()[0]
	b.ReportMetric(float64(after.Wakes-before.Wakes)/float64(after.Posted-before.Posted), "wakes/READ")
	b.ReportMetric(float64(in[len(in)/2]), "inside-ns")
	b.ReportMetric(float64(out[len(out)/2]), "ipc-ns")
	b.ReportMetric(float64(out[len(out)/2]-in[len(in)/2]), "added-ns")
	must(b, to.Close())
	_, err = io.Copy(io.Discard, answers)
	must(b, err)
	must(b, cmd.Wait())
}
