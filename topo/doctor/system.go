package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/packetio/afpacket"
	"github.com/rdmalab/rdmalab/topo/nl"
)

// commandWait bounds how long a program may take to print its version.
const commandWait = 10 * time.Second

// System gives probes access to a machine. Every field must be set.
type System struct {
	// Arch is the architecture by Go's name. CPUs is the number of processors that the program may
	// use.
	Arch string
	CPUs int
	Euid int
	// Release is the version of the kernel, such as "6.18.5".
	Release string
	// ReadFile reads a file; probes read files of /proc, /sys and /etc.
	ReadFile func(path string) ([]byte, error)
	// Writable returns an error if a file or folder cannot be written to.
	Writable func(path string) error
	// Look searches for a program and returns its path; an error means that there is none.
	Look func(program string) (string, error)
	// Run runs a program and returns the first line that it prints on standard output.
	Run func(ctx context.Context, argv ...string) (string, error)
	// Unshare makes namespaces with flags of unshare(2), and leaves them at once.
	Unshare func(flags int) error
	// Memlock returns the limits of locked memory in bytes.
	Memlock func() (soft, hard uint64, err error)
	// Links tries to make a link between two namespaces. Later calls return the result of the first
	// call.
	Links func() Links
	// Cgroup makes a cgroup below the mount point root, and reports which of the files the cgroup has.
	Cgroup func(root string, files ...string) (has []bool, err error)
}

// Links is the result of making a link between two network namespaces and of opening a port on it.
type Links struct {
	// Err says why there is no link, PortErr why there is no port on it.
	Err, PortErr error
	Port         afpacket.Info
}

// Machine returns the System of this machine.
func Machine() *System {
	return &System{
		Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Euid: os.Geteuid(), Release: release(),
		ReadFile: os.ReadFile,
		Writable: func(path string) error { return unix.Access(path, unix.W_OK) },
		Look:     exec.LookPath,
		Run:      run,
		Unshare: func(flags int) error {
			return nl.OnOwnThread(func() error { return unix.Unshare(flags) })
		},
		Memlock: memlock,
		Links:   sync.OnceValue(tryLinks),
		Cgroup:  tryCgroup,
	}
}

func release() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "" // the probe reports the version as unknown
	}
	return unix.ByteSliceToString(u.Release[:])
}

func run(ctx context.Context, argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandWait)
	defer cancel()
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).Output()
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if ctx.Err() != nil {
		return line, fmt.Errorf("%s has not answered in %v", argv[0], commandWait)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if said, _, _ := strings.Cut(strings.TrimSpace(string(exit.Stderr)), "\n"); said != "" {
			err = errors.New(said)
		}
	}
	return line, err
}

func memlock() (soft, hard uint64, err error) {
	var l unix.Rlimit
	err = unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l)
	return l.Cur, l.Max, err
}

// tryLinks joins two new namespaces by a veth pair, opens a port on one end, and removes
// everything.
func tryLinks() (l Links) {
	dir, err := os.MkdirTemp("", "rdmalab-doctor-")
	if err != nil {
		return Links{Err: err}
	}
	defer func() { l.Err = errors.Join(l.Err, os.RemoveAll(dir)) }()
	ends := [2]nl.End{{Name: "doctor0"}, {Name: "doctor1"}}
	for i := range ends {
		e := &ends[i]
		e.Netns = filepath.Join(dir, e.Name)
		e.Addrs = []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("192.0.2.%d/24", i+1))} // TEST-NET-1, whose addresses no host has
		if err := nl.Create(e.Netns); err != nil {
			return Links{Err: err}
		}
		defer func() { l.Err = errors.Join(l.Err, nl.Remove(e.Netns)) }()
	}
	const mtu = 4200
	if err := nl.Connect(ends[0], ends[1], mtu); err != nil {
		return Links{Err: err}
	}
	l.PortErr = nl.Do(ends[0].Netns, func() error {
		p, err := afpacket.Open(afpacket.Config{Ifname: ends[0].Name})
		if err != nil {
			return err
		}
		l.Port = p.Info()
		return p.Close()
	})
	return l
}

// tryCgroup makes a cgroup, checks for the files, and removes it.
func tryCgroup(root string, files ...string) (has []bool, err error) {
	dir := filepath.Join(root, fmt.Sprintf("rdmalab-doctor-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	for _, f := range files {
		_, err := os.Stat(filepath.Join(dir, f))
		has = append(has, err == nil)
	}
	return has, unix.Rmdir(dir)
}
