package serve

import (
	"bytes"
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapQuery is the argument of the ioctl by which the kernel finds a mapping of a program (struct
// procmap_query of linux/fs.h, from Linux 6.11 on).
type mapQuery struct {
	size, flags, addr   uint64
	from, to, rights    uint64
	page, offset, inode uint64
	major, minor        uint32
	nameLen, buildLen   uint32
	nameAddr, buildAddr uint64
}

// queryMap is the number of this ioctl (PROCMAP_QUERY). If the kernel does not have it, it returns
// ENOTTY.
const queryMap = 0xc0686611

// errNoQuery means that the kernel cannot answer, and that the lines of the file must be read.
var errNoQuery = errors.New("no query of mappings")

// maxMapName is the size of the buffer for the name of a mapping: a path and an addition.
const maxMapName = unix.PathMax + 64

// query does what mappings does, without a look at other mappings of the program. A program with a
// thousand connections has thousands of them.
func (m *programMemory) query(start, end uint64) (all []mapping, err error) {
	w := walk{start: start, end: end}
	for range maxMaps {
		x, err := m.queryOne(w.start)
		if err != nil {
			return nil, err
		}
		if done, err := w.add(x); done || err != nil {
			return w.all, err
		}
	}
	return nil, unix.EFAULT
}

// queryOne returns the mapping in which an address is. It fails with EFAULT if there is none.
func (m *programMemory) queryOne(addr uint64) (x mapping, err error) {
	var name [maxMapName]byte
	q := mapQuery{addr: addr, nameLen: maxMapName, nameAddr: uint64(uintptr(unsafe.Pointer(&name[0])))}
	q.size = uint64(unsafe.Sizeof(q))
	raw, err := m.maps.SyscallConn()
	if err != nil {
		return x, errNoQuery
	}
	var no unix.Errno
	err = raw.Control(func(fd uintptr) {
		_, _, no = unix.Syscall(unix.SYS_IOCTL, fd, queryMap, uintptr(unsafe.Pointer(&q)))
	})
	switch {
	case err == nil && no == unix.ENOENT:
		return x, unix.EFAULT
	case err != nil || no != 0:
		return x, errNoQuery
	}
	x = mapping{from: q.from, to: q.to, offset: q.offset, rights: rightsOf(q.rights)}
	if x.file.number = q.inode; q.inode != 0 {
		x.file.device = unix.Mkdev(q.major, q.minor)
	}
	text, _, _ := bytes.Cut(name[:], []byte{0})
	text, _, _ = bytes.Cut(text, []byte(" ")) // as in a line, where an addition follows
	x.name = string(text)
	return x, nil
}

// rightsOf returns the rights as a line of the file has them.
func rightsOf(bits uint64) string {
	b := []byte("---p")
	for i, c := range []byte("rwx") {
		if bits&(1<<i) != 0 {
			b[i] = c
		}
	}
	if bits&8 != 0 {
		b[3] = 's'
	}
	return string(b)
}
