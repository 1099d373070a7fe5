package image

import (
	"fmt"
	"io"
	"io/fs"
)

// Modes of entries, as in struct stat.
const (
	modeDir     = 0o040000
	modeFile    = 0o100000
	modeSymlink = 0o120000
)

// cpio writes an archive in the "newc" format, which the kernel unpacks as its first root file
// system. Archives may follow each other; a later file replaces an earlier one.
type cpio struct {
	w     io.Writer
	inode uint32
	seen  map[string]bool // folders that the archive has
	err   error
}

func newCpio(w io.Writer) *cpio { return &cpio{w: w, seen: map[string]bool{}} }

// dir adds a folder, and those above it.
func (c *cpio) dir(name string) {
	if name == "." || name == "" || c.seen[name] {
		return
	}
	c.parents(name)
	c.seen[name] = true
	c.entry(name, modeDir|0o755, nil)
}

// file adds a regular file.
func (c *cpio) file(name string, mode fs.FileMode, data []byte) {
	c.parents(name)
	c.entry(name, modeFile|uint32(mode.Perm()), data)
}

// symlink adds a symbolic link.
func (c *cpio) symlink(name, target string) {
	c.parents(name)
	c.entry(name, modeSymlink|0o777, []byte(target))
}

func (c *cpio) parents(name string) {
	for i := range len(name) {
		if name[i] == '/' {
			if parent := name[:i]; !c.seen[parent] {
				c.seen[parent] = true
				c.entry(parent, modeDir|0o755, nil)
			}
		}
	}
}

// end closes the archive and returns the first error of all.
func (c *cpio) end() error {
	c.entry("TRAILER!!!", 0, nil)
	return c.err
}

func (c *cpio) entry(name string, mode uint32, data []byte) {
	c.inode++
	// inode, mode, uid, gid, links, mtime, size, device of the file, device it stands for, length
	// of the name, checksum
	fields := [...]uint32{c.inode, mode, 0, 0, 1, 0, uint32(len(data)), 0, 0, 0, 0, uint32(len(name) + 1), 0}
	head := "070701"
	for _, f := range fields {
		head += fmt.Sprintf("%08x", f)
	}
	head += name + "\x00"
	c.write([]byte(head))
	c.pad(len(head))
	c.write(data)
	c.pad(len(data))
}

// pad fills up to a multiple of four, from n.
func (c *cpio) pad(n int) { c.write(make([]byte, -n&3)) }

func (c *cpio) write(b []byte) {
	if c.err == nil {
		_, c.err = c.w.Write(b)
	}
}
