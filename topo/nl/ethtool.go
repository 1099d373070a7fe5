package nl

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// ethtoolValue is struct ethtool_value of linux/ethtool.h.
type ethtoolValue struct{ cmd, data uint32 }

// ifreqData is struct ifreq with a pointer in its union.
type ifreqData struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [16]byte // the longest member of the union has 24 bytes
}

func setOffload(name string, cmd uint32, on bool) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd) // the socket was used only for an ioctl
	value := ethtoolValue{cmd: cmd}
	if on {
		value.data = 1
	}
	return ethtool(fd, name, &value)
}

// ethtool makes a request about an interface of the namespace of socket fd.
func ethtool(fd int, name string, value *ethtoolValue) error {
	req := ifreqData{data: unsafe.Pointer(value)}
	copy(req.name[:unix.IFNAMSIZ-1], name)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req))); errno != 0 {
		return errno
	}
	return nil
}
