package rack

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/rackfile"
)

// admit installs the libraries for unmodified programs. If the rack's description names a group, its
// users may run programs on the NICs of the hosts. For that, admit gives the folder of sockets to
// root and the group; files that daemons make there then belong to the group. Sockets that are not
// for programs give no rights to the group.
func admit(s *rackfile.Rack, p rackfile.Paths) error {
	// The libraries are written now, because programs of other users and in containers cannot write them
	// later.
	if _, err := PlaceLibraries(p); err != nil || s.Group == "" {
		return err
	}
	gid, err := groupID(s.Group)
	if err != nil {
		return err
	}
	dir := filepath.Dir(p.VerbsLibrary())
	// The setgid bit is set last, because a change of the owner would clear it.
	if err := errors.Join(os.Chown(dir, 0, gid), os.Chmod(dir, 0o750|os.ModeSetgid)); err != nil {
		return fmt.Errorf("give group %s the folder of sockets: %w", s.Group, err)
	}
	return nil
}

// groupID returns the number of a group of this machine, which is given by its name or its number.
func groupID(name string) (int, error) {
	id := name
	if _, err := strconv.ParseUint(name, 10, 32); err != nil {
		g, err := user.LookupGroup(name)
		if err != nil {
			return 0, fmt.Errorf("group %q of the rack file is not in /etc/group: make it with `groupadd %s`, or write the number of a group (%w)", name, name, err)
		}
		id = g.Gid
	}
	n, err := strconv.ParseUint(id, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("group %q has the number %q: %w", name, id, err)
	}
	if n == 0 {
		return 0, fmt.Errorf("group %q of the rack file is root's, which may use the hosts anyway: write another group, or none", name)
	}
	return int(n), nil
}

// admitted returns an error if the caller, who is not root, may not use the socket of a host's NIC
// for programs.
func admitted(s *rackfile.Rack, p rackfile.Paths, host string) error {
	err := unix.Faccessat(unix.AT_FDCWD, p.Verbs(host), unix.W_OK, unix.AT_EACCESS)
	switch {
	case !errors.Is(err, unix.EACCES):
		return nil // the host may have crashed; the program then gets the error
	case s.Group == "":
		return fmt.Errorf("only root may use the NIC of %s: run the program with sudo, or write `group: NAME` into the rack file, and bring the rack up again", host)
	}
	who := strconv.Itoa(os.Geteuid())
	if u, err := user.Current(); err == nil {
		who = u.Username
	}
	return fmt.Errorf("user %s is not in group %s, which may use the NIC of %s: root adds them with `usermod -aG %s %s`, "+
		"which counts from their next login", who, s.Group, host, s.Group, who)
}

// errExec returns the error for a caller who is not root and wants to enter a node.
func errExec(s *rackfile.Rack, node string) error {
	if _, _, ok := s.Host(node); !ok || s.Group == "" {
		return ErrPrivilege
	}
	return fmt.Errorf("%w. The NIC of %s alone needs group %s and not root: `eval \"$(rdmalab env %s)\"`, "+
		"and then the program in the network of your shell", ErrPrivilege, node, s.Group, node)
}
