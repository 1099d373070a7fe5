package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
)

// drivers are the modules that the guest loads; what they depend on is added in front.
var drivers = []string{
	"virtio_pci", "virtio_net", "virtio_console", "virtio-rng", "af_packet", "crc32_generic", "crc32-pclmul", "ipv6",
	"rdma_rxe", "ib_uverbs", "rdma_ucm", "ib_umad",
}

// moduleFolders are the folders in which drivers and their dependencies are. Only these are read,
// because all of the kernel's modules have half a gigabyte.
var moduleFolders = []string{
	"arch/x86/crypto", "crypto", "drivers/char", "drivers/infiniband/core", "drivers/infiniband/sw", "drivers/net/", "drivers/virtio", "fs/configfs",
	"lib", "net/core",
	"net/ipv4", "net/ipv6", "net/packet",
}

// kernelParts is what is taken from a kernel package.
type kernelParts struct {
	bzImage []byte
	modules map[string][]byte // by name, with "_" for "-"
}

// readKernel reads the kernel, and the modules in moduleFolders, from the package deb.
func readKernel(ctx context.Context, deb string) (*kernelParts, error) {
	k := &kernelParts{modules: map[string][]byte{}}
	return k, contents(ctx, deb, func(h *tar.Header, r io.Reader) (err error) {
		name := path.Clean(h.Name)
		if h.Typeflag != tar.TypeReg {
			return nil
		}
		if strings.HasPrefix(name, "boot/vmlinuz-") {
			k.bzImage, err = io.ReadAll(r)
			return err
		}
		_, rel, ok := strings.Cut(name, "/kernel/")
		if !ok || !strings.Contains(rel, ".ko") || !inModuleFolder(rel) {
			return nil
		}
		data, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		base, packed, _ := strings.Cut(path.Base(rel), ".ko")
		if packed != "" {
			if data, err = decompress(ctx, data); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		k.modules[moduleName(base)] = data
		return nil
	})
}

func inModuleFolder(rel string) bool {
	return slices.ContainsFunc(moduleFolders, func(d string) bool {
		return strings.HasSuffix(d, "/") && path.Dir(rel)+"/" == d || !strings.HasSuffix(d, "/") && strings.HasPrefix(rel, d+"/")
	})
}

func moduleName(s string) string { return strings.ReplaceAll(s, "-", "_") }

// inOrder returns the names of all drivers with what they depend on, each behind its dependencies.
// A module that the package does not have is built in.
func (k *kernelParts) inOrder() ([]string, error) {
	var order []string
	done := map[string]bool{}
	var add func(name string) error
	add = func(name string) error {
		data, ok := k.modules[name]
		if done[name] || !ok {
			return nil
		}
		done[name] = true
		needs, err := dependencies(data)
		if err != nil {
			return fmt.Errorf("module %s: %w", name, err)
		}
		for _, n := range needs {
			if err := add(moduleName(n)); err != nil {
				return err
			}
		}
		order = append(order, name)
		return nil
	}
	for _, name := range drivers {
		if err := add(moduleName(name)); err != nil {
			return nil, err
		}
	}
	if !done["rdma_rxe"] {
		return nil, errors.New("the kernel has no module rdma_rxe")
	}
	return order, nil
}

// dependencies returns the names of the modules that a module needs.
func dependencies(module []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(module))
	if err != nil {
		return nil, err
	}
	s := f.Section(".modinfo")
	if s == nil {
		return nil, errors.New("no section .modinfo")
	}
	info, err := s.Data()
	if err != nil {
		return nil, err
	}
	for _, line := range bytes.Split(info, []byte{0}) {
		if list, ok := strings.CutPrefix(string(line), "depends="); ok && list != "" {
			return strings.Split(list, ","), nil
		}
	}
	return nil, nil
}

// Places in the head of a bzImage (Documentation/arch/x86/boot.rst).
const (
	setupSectors  = 0x1f1
	payloadOffset = 0x248
	payloadLength = 0x24c
	sector        = 512
)

// unwrap extracts the kernel, an ELF file, from a bzImage. That saves several seconds at boot,
// because an emulated processor is slow at unpacking the kernel.
func unwrap(ctx context.Context, bzImage []byte) ([]byte, error) {
	if len(bzImage) < payloadLength+4 {
		return nil, errors.New("kernel image is too short")
	}
	setup := int(bzImage[setupSectors])
	if setup == 0 {
		setup = 4
	}
	from := (setup+1)*sector + int(binary.LittleEndian.Uint32(bzImage[payloadOffset:]))
	to := from + int(binary.LittleEndian.Uint32(bzImage[payloadLength:]))
	if from < 0 || to > len(bzImage) || to-from < 8 {
		return nil, errors.New("kernel image has no payload")
	}
	// The last four bytes of the payload are the length of the unpacked kernel.
	elfImage, err := decompress(ctx, bzImage[from:to-4])
	if err == nil && !bytes.HasPrefix(elfImage, []byte(elf.ELFMAG)) {
		err = errors.New("payload of the kernel image is no ELF file")
	}
	return elfImage, err
}

// decompress unpacks b. It knows the formats that builds of the kernel use: gzip, xz and zstd.
func decompress(ctx context.Context, b []byte) ([]byte, error) {
	var tool string
	switch {
	case bytes.HasPrefix(b, []byte{0x1f, 0x8b}):
		r, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			return nil, err
		}
		return io.ReadAll(r)
	case bytes.HasPrefix(b, []byte("\xfd7zXZ\x00")):
		tool = "xz"
	case bytes.HasPrefix(b, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		tool = "zstd"
	default:
		return nil, fmt.Errorf("unknown compression % x", b[:min(len(b), 8)])
	}
	if _, err := exec.LookPath(tool); err != nil {
		return nil, fmt.Errorf("%w: program %s", ErrMissing, tool)
	}
	cmd := exec.CommandContext(ctx, tool, "-dc")
	cmd.Stdin = bytes.NewReader(b)
	return cmd.Output()
}
