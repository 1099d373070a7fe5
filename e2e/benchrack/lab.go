package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/e2e/interop/ask"
	"github.com/rdmalab/rdmalab/e2e/interop/image"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/uverbs/preload"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// emulated is the note on figures of emulated processors.
const emulated = "the processors of the virtual machines are emulated: only ratios of one run mean anything"

// lab compares two NICs in virtual machines that run a distribution's kernel: the kernel's own soft
// RoCE NIC (rxe, on eth0), and this project's NIC (the daemon of a host, on eth1). The daemon has a
// network namespace of its own, so rxe sees none of its packets. Both NICs are measured with the
// same programs, which are the distribution's.
type lab struct {
	bench
	img  *image.Image
	rack *rackfile.Rack
	cpus int // processors of each machine
	kvm  bool
}

// setup is a number of virtual machines, 1 or 2. In a single machine each NIC sends to itself. With
// two machines, the NICs of the second one send to those of the first one, over links that carry
// single frames.
type setup struct {
	name     string
	machines int
}

var setups = []setup{{"one", 1}, {"two", 2}}

// defaultCPUs gives each process that polls its own processor: two programs and a daemon. If the
// daemon shared a processor with a program, it would have to wait for the end of the program's time
// slice again and again.
const defaultCPUs = 3

// inGuest has the paths of the rack's state in a guest. They are not below /run, because the guest
// mounts an empty file system there at boot.
var inGuest = rackfile.Paths{Dir: "/rack"}

// newLab makes the image of the virtual machines. boot is the file of their first program.
func newLab(ctx context.Context, b bench, boot string, cpus int, kvm bool) ([]stage, error) {
	if _, err := exec.LookPath(image.QEMU); err != nil {
		return nil, fmt.Errorf("%w: install it (Debian: qemu-system-x86)", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	cache = filepath.Join(cache, "rdmalab-interop")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, err
	}
	l := &lab{bench: b, cpus: cpus, kvm: kvm}
	if l.rack, err = rackfile.Parse([]byte(hosts)); err != nil {
		return nil, err
	}
	files, err := l.files(boot)
	if err != nil {
		return nil, err
	}
	if l.img, err = image.Build(ctx, cache, "bench", files); err != nil {
		return nil, fmt.Errorf("image of the virtual machines: %w", err)
	}
	var stages []stage
	for _, s := range setups {
		stages = append(stages, stage{s.name, func(ctx context.Context, dir string, t *tally) error { return l.setup(ctx, dir, s, t) }})
	}
	return stages, nil
}

// files lists the files of this project that the image contains.
func (l *lab) files(boot string) ([]image.File, error) {
	lib, ok := preload.Library()
	if !ok {
		return nil, errors.New("there is no library for unmodified programs on this processor")
	}
	description, err := l.rack.Encode()
	if err != nil {
		return nil, err
	}
	files := []image.File{
		{Name: inGuest.Spec()[1:], Mode: 0o644, Data: description},
		{Name: inGuest.VerbsLibrary()[1:], Mode: 0o755, Data: lib},
	}
	for name, path := range map[string]string{"init": boot, "rdmalab": l.program} {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		files = append(files, image.File{Name: name, Mode: 0o755, Data: data})
	}
	return files, nil
}

// duels lists the measures of a setup in the order of a round. Each test is run first on the
// kernel's NIC and then on this project's.
func (l *lab) duels(s setup) (ds []duel) {
	for _, e := range exchanges {
		for _, n := range nics {
			d := duel{exchange: e, nic: n, name: s.name + "/" + n.name + "_" + e.name}
			if n.base != "" {
				d.base = s.name + "/" + n.base + "_" + e.name
			}
			if l.pick.MatchString(d.name) {
				ds = append(ds, d)
			}
		}
	}
	return ds
}

// duel is one test on one of the two NICs.
type duel struct {
	exchange
	nic        nic
	name, base string
}

// nic is one of the two NICs in a guest, as programs find it.
type nic struct {
	name, base string
	gid        string // index of its IPv4 address in its GID table
	env        func(host string) []string
}

var nics = []nic{
	{name: "rxe", gid: "1", env: func(string) []string { return nil }},
	{name: "ours", base: "rxe", gid: "0", env: func(host string) []string {
		return []string{
			rackfile.EnvVerbs + "=" + inGuest.Verbs(host), uverbs.EnvTree + "=" + inGuest.VerbsTree(host), "LD_PRELOAD=" + inGuest.VerbsLibrary(),
		}
	}},
}

// slowdown divides the numbers of repetitions of the tests, because emulated processors are slow.
const slowdown = 4

// setup boots the machines of s, runs its tests, adds the results to t, and ends the machines.
func (l *lab) setup(ctx context.Context, dir string, s setup, t *tally) error {
	ds := l.duels(s)
	if len(ds) == 0 {
		return nil
	}
	if !l.kvm {
		t.note = emulated
	}
	ctx, cancel := context.WithCancel(ctx) // the machines end with this ctx
	defer cancel()
	vms, err := l.boot(ctx, dir, s)
	defer func() {
		cancel()
		for _, vm := range vms {
			<-vm.ended
		}
	}()
	if err != nil {
		return err
	}
	for _, d := range ds {
		before, err := daemonTimes(vms)
		if err != nil {
			return err
		}
		out, err := d.run(ctx, vms)
		if err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
		if after, err := daemonTimes(vms); err != nil {
			return err
		} else if d.nic.base != "" {
			d.share(t, before, after)
		}
		col := d.column
		if d.unit == "sec/op" {
			col = medianColumn
		}
		v, err := column(col, d.scale)(out)
		if err != nil {
			return fmt.Errorf("%s: %w: %s", d.name, err, out)
		}
		t.add(d.name, d.unit, d.base, v)
	}
	return nil
}

// clocked are the times of the daemons of all machines, in seconds: how long their threads have had
// a processor, and how long they have waited for one, since they began.
type clocked struct{ ran, waited float64 }

func daemonTimes(vms []*vm) (sum clocked, err error) {
	for _, v := range vms {
		out, err := v.do(context.Background(), nil, "/init", "times", "rdmalab")
		if err != nil {
			return sum, err
		}
		var ran, waited uint64
		if _, err := fmt.Sscan(string(out), &ran, &waited); err != nil {
			return sum, fmt.Errorf("times of the daemon of %s: %q: %w", v.host, out, err)
		}
		sum.ran, sum.waited = sum.ran+float64(ran)/1e9, sum.waited+float64(waited)/1e9
	}
	return sum, nil
}

// share adds the part of the time in which the daemons wanted a processor and had one, 0 to 1.
func (d duel) share(t *tally, before, after clocked) {
	ran, waited := after.ran-before.ran, after.waited-before.waited
	if ran > 0 {
		t.add(d.name+"_daemon_runs", "of 1", "", ran/(ran+waited))
	}
}

// medianColumn is the number of the column with the median in the output of perftest's latency
// tests.
const medianColumn = 4

// unclocked is part of perftest's error message when it cannot measure the rate of the processor's
// cycle counter. On a busy machine, the rate of an emulated processor's counter varies. clockTries
// is how often a test is tried in spite of this error.
const (
	unclocked  = "Correlation coefficient r^2"
	clockTries = 5
)

// run runs the test between the last machine and the first.
func (d duel) run(ctx context.Context, vms []*vm) (out []byte, err error) {
	server, client := vms[0], vms[len(vms)-1]
	args := append(d.args(d.nic.gid, d.iters/slowdown), "-u", "18") // an ACK timeout of 1 s, long enough for emulated processors
	for range clockTries {
		out, err = pair(ctx, server.command(d.nic, args...), client.command(d.nic, append(args, server.addr)...))
		if err == nil || !strings.Contains(err.Error(), unclocked) {
			break
		}
	}
	return out, err
}

// vm is a running virtual machine.
type vm struct {
	host  string // name of the rack's host
	addr  string // address of eth0, at which servers listen
	ended chan struct{}
	asked *ask.Client
}

// command runs a program in the machine.
func (v *vm) command(n nic, args ...string) command {
	return func(ctx context.Context) ([]byte, error) { return v.do(ctx, n.env(v.host), args...) }
}

// do runs a program, which must succeed, and returns what it printed. When ctx ends, it ends the
// program.
func (v *vm) do(ctx context.Context, env []string, args ...string) ([]byte, error) {
	p, err := v.asked.Begin(env, args...)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { p.Signal(unix.SIGKILL) })()
	if a := p.Finish(commandLimit); a.Code != 0 {
		return nil, fmt.Errorf("%s: %v: exit status %d: %s", v.host, args, a.Code, a.Output)
	} else {
		return []byte(a.Output), nil
	}
}

// Bounds of a machine's start.
const (
	bootLimit = 3 * time.Minute
	bootPoll  = 50 * time.Millisecond
)

// boot starts the machines of a setup, also those that it returns with an error, and waits until
// both NICs of each can be used.
func (l *lab) boot(ctx context.Context, dir string, s setup) ([]*vm, error) {
	links, err := makeLinks(s.machines)
	if err != nil {
		return nil, err
	}
	var vms []*vm
	for i := range s.machines {
		v, err := l.start(ctx, dir, i, links[i])
		if err != nil {
			for _, rest := range links[i:] {
				closeAll(rest)
			}
			return vms, err
		}
		vms = append(vms, v)
	}
	ctx, cancel := context.WithTimeout(ctx, bootLimit)
	defer cancel()
	errs := make(chan error)
	for i, v := range vms {
		go func() { errs <- l.prepare(ctx, v, filepath.Join(dir, fmt.Sprint("command", i))) }()
	}
	for range vms {
		err = errors.Join(err, <-errs)
	}
	return vms, err
}

// makeLinks makes two links, one for each NIC of a machine. ends[i] has the ends of machine i. If
// there is only one machine, frames that leave it on a link are dropped.
func makeLinks(machines int) (ends [][]*os.File, err error) {
	ends = make([][]*os.File, 2)
	for range nics {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			for _, e := range ends {
				closeAll(e)
			}
			return nil, err
		}
		for i, fd := range fds {
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, linkBuffer) // needs CAP_NET_ADMIN; without it the buffer stays small
			ends[i] = append(ends[i], os.NewFile(uintptr(fd), "link"))
		}
	}
	if machines == 1 {
		for _, f := range ends[1] {
			go func() { // ends with the machine
				defer f.Close()
				_, _ = io.Copy(io.Discard, f)
			}()
		}
	}
	return ends, nil
}

// linkBuffer is the size of a link's send buffer in bytes. It holds the frames of one machine while
// the other machine is not scheduled.
const linkBuffer = 4 << 20

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // nothing was written
	}
}

// start starts machine i, which is host i of the rack. It ends with ctx.
func (l *lab) start(ctx context.Context, dir string, i int, links []*os.File) (*vm, error) {
	h := &l.rack.Hosts[i]
	v := &vm{host: h.Name, addr: fmt.Sprintf("10.78.0.%d", i+1), ended: make(chan struct{})}
	m := image.Machine{
		Kernel: l.img.Kernel, Initrd: l.img.Initrd, MTU: l.rack.LinkMTU, Addrs: []string{v.addr + "/24"}, KVM: l.kvm, Memory: 1024, Processors: l.cpus,
		Links:   []wire.MAC{{0x02, 0x78, 0, 0, 0, byte(i + 1)}, h.MAC}, // of eth0 and eth1
		Command: filepath.Join(dir, fmt.Sprint("command", i)), Console: filepath.Join(dir, fmt.Sprint("console", i)),
	}
	if err := os.Remove(m.Command); err != nil && !errors.Is(err, os.ErrNotExist) { // the socket of an earlier round
		return nil, err
	}
	cmd := exec.CommandContext(ctx, image.QEMU, m.Args()...)
	cmd.ExtraFiles = links
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	closeAll(links)
	go func() {
		_ = cmd.Wait() // always an error, because the machine is killed
		close(v.ended)
	}()
	return v, nil
}

// prepare waits until a machine answers, and starts the host's daemon in it.
func (l *lab) prepare(ctx context.Context, v *vm, command string) error {
	conn, err := l.await(ctx, v, command)
	if err != nil {
		return fmt.Errorf("%s does not start: %w", v.host, err)
	}
	go func() { // the client of package ask reads from conn until the machine ends
		<-v.ended
		_ = conn.Close()
	}()
	v.asked = ask.NewClient(conn)
	in := []string{"ip", "netns", "exec", namespace}
	for _, args := range [][]string{
		{"ip", "netns", "add", namespace},
		{"ip", "link", "set", "eth1", "netns", namespace},
		slices.Concat(in, []string{"ip", "link", "set", "lo", "up"}),
		slices.Concat(in, []string{"ip", "link", "set", "eth1", "mtu", fmt.Sprint(l.rack.LinkMTU), "up"}),
	} {
		if _, err := v.do(ctx, nil, args...); err != nil {
			return err
		}
	}
	daemon, err := v.asked.Begin(nil, slices.Concat(in, []string{"/rdmalab", "host", "--rack-dir", inGuest.Dir, "--name", v.host, "--ifname", "eth1"})...)
	if err != nil {
		return err
	}
	failed := make(chan string, 1)
	go func() { failed <- daemon.Finish(time.Duration(1<<63 - 1)).Output }() // returns when the daemon or the machine ends
	for _, n := range nics {
		for {
			out, err := v.do(ctx, n.env(v.host), "ibv_devinfo", "-d", "rxe0")
			if strings.Contains(string(out), "PORT_ACTIVE") {
				break
			}
			select {
			case said := <-failed:
				return fmt.Errorf("%s: the daemon ended: %s", v.host, said)
			case <-ctx.Done():
				return fmt.Errorf("%s: %s: %w: %w", v.host, n.name, context.Cause(ctx), err)
			case <-time.After(bootPoll):
			}
		}
	}
	return nil
}

// namespace is the network namespace of the daemon in a guest.
const namespace = "nic"

// await connects to a machine's port for commands.
func (l *lab) await(ctx context.Context, v *vm, command string) (net.Conn, error) {
	for {
		c, err := net.Dial("unix", command)
		if err == nil {
			return c, nil
		}
		select {
		case <-v.ended:
			return nil, errors.New("it ended")
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), err)
		case <-time.After(bootPoll):
		}
	}
}
