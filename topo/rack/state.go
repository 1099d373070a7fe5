package rack

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/nl"
)

// stateSize are the mount options of a rack's tmpfs. Its size bounds logs and descriptions; it has 1 MiB
// for each port of a switch, whose host keeps there 0.5 MiB of files that show its NIC to programs.
const stateSize = "size=320m,mode=0755"

// makeState mounts the rack's tmpfs and writes the files that the daemons read.
func makeState(s *rackfile.Rack, p rackfile.Paths, secret []byte) error {
	if err := os.Mkdir(p.Dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make state folder: %w", err)
	}
	if err := unix.Mount("rdmalab", p.Dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, stateSize); err != nil {
		return fmt.Errorf("mount state folder %s: %w", p.Dir, err)
	}
	// The mount is made private. Otherwise the pins of namespaces below it would be copied to other
	// mount namespaces, which would keep the namespaces alive.
	if err := unix.Mount("", p.Dir, "", unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make state folder %s private: %w", p.Dir, err)
	}
	for _, file := range []string{p.Netns("x"), p.Socket("x"), p.Log("x"), p.Crashed("x"), p.Broken("x"), p.Timer("x")} {
		if err := os.Mkdir(filepath.Dir(file), 0o755); err != nil {
			return fmt.Errorf("make state folder: %w", err)
		}
	}
	if err := os.WriteFile(p.Hosts(), []byte(hostsFile(s)), 0o644); err != nil {
		return err
	}
	if err := admit(s, p); err != nil {
		return err
	}
	if s.Fabric.OnLoopback() { // no other machine has to know it
		secret = make([]byte, 32)
		_, _ = rand.Read(secret) // it never fails: crypto/rand ends the process
	}
	if secret != nil {
		if err := os.WriteFile(p.Secret(), secret, 0o600); err != nil {
			return err
		}
	}
	data, err := s.Encode()
	if err != nil {
		return err
	}
	return os.WriteFile(p.Spec(), data, 0o644)
}

// hostsFile returns the content of the file that every host sees as /etc/hosts.
func hostsFile(s *rackfile.Rack) string {
	var b strings.Builder
	b.WriteString("127.0.0.1 localhost\n::1 localhost\n")
	line := func(a netip.Addr, name string) { fmt.Fprintf(&b, "%s %s\n", a, name) }
	for i := range s.Hosts {
		h := &s.Hosts[i]
		line(h.IPv4, h.HostAlias())
		line(h.IPv6, h.HostAlias())
	}
	return b.String()
}

func makeNamespaces(s *rackfile.Rack, p rackfile.Paths) error {
	// Trunks to other machines go out from where this program runs, and network devices are there.
	if len(s.Machines) > 0 || len(s.Devices) > 0 {
		if err := nl.Pin(p.Outside()); err != nil {
			return err
		}
	}
	if err := nl.Create(p.Netns(rackfile.SwitchName)); err != nil {
		return err
	}
	if s.Fabric.OnLoopback() {
		if err := nl.SetUp(p.Netns(rackfile.SwitchName), "lo", true); err != nil {
			return err
		}
	}
	return nl.DisableIPv6(p.Netns(rackfile.SwitchName)) // the switch forwards IPv6, but has no IPv6 addresses in this namespace
}
