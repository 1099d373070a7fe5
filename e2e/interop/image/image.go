package image

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// ErrMissing means that this machine lacks a program or file that is needed to make the image.
var ErrMissing = errors.New("missing")

// layout is increased when packages are unpacked differently, so that parts from earlier runs are
// not used.
const layout = 1

// File is a file that the caller adds to the image.
type File struct {
	Name string // path from the root of the image, without a leading "/"
	Mode fs.FileMode
	Data []byte
}

// Image is a virtual machine, ready to boot.
type Image struct {
	Kernel, Initrd string // paths of the files
	Version        string // version of the kernel
}

// Build makes an image in dir, and keeps its parts there for later calls. name distinguishes images
// that differ only in extra. The image has the kernel modules to load as modules/NN-NAME.ko, where
// NN gives their order. The error wraps ErrMissing if this machine lacks something that Build
// needs.
func Build(ctx context.Context, dir, name string, extra []File) (*Image, error) {
	if runtime.GOARCH != "amd64" {
		return nil, fmt.Errorf("%w: the image is for amd64 machines", ErrMissing)
	}
	for _, tool := range []string{"apt-get", "apt-cache", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("%w: program %s (Debian or a relative)", ErrMissing, tool)
		}
	}
	debs := filepath.Join(dir, "packages")
	kernel, err := fetch(ctx, debs)
	if err != nil {
		return nil, err
	}
	img := &Image{
		Kernel: filepath.Join(dir, "vmlinux"), Initrd: filepath.Join(dir, name+".initrd"), Version: strings.TrimPrefix(kernel, "linux-image-"),
	}
	base := filepath.Join(dir, "base.cpio")
	if err := img.base(ctx, debs, base); err != nil {
		return nil, err
	}
	return img, img.finish(base, extra)
}

// base unpacks the packages into the archive base, unless an earlier call has done so with the same
// packages.
func (img *Image) base(ctx context.Context, debs, base string) error {
	stamp := base + ".of"
	names, err := filepath.Glob(filepath.Join(debs, "*.deb"))
	if err != nil {
		return err
	}
	list := fmt.Appendf(nil, "layout %d\n%s\n%s", layout, strings.Join(append(moduleFolders, drivers...), " "), strings.Join(names, "\n"))
	if have, err := os.ReadFile(stamp); err == nil && bytes.Equal(have, list) {
		return nil
	}
	kernelDeb, err := filepath.Glob(filepath.Join(debs, "linux-image-*.deb"))
	if err != nil || len(kernelDeb) != 1 {
		return errors.Join(err, fmt.Errorf("%d kernel packages in %s", len(kernelDeb), debs))
	}
	k, err := readKernel(ctx, kernelDeb[0])
	if err != nil {
		return err
	}
	vmlinux, err := unwrap(ctx, k.bzImage)
	if err != nil {
		return err
	}
	if err := os.WriteFile(img.Kernel, vmlinux, 0o600); err != nil {
		return err
	}
	if err := writeArchive(base, func(c *cpio) error {
		if err := userland(ctx, debs, c); err != nil {
			return err
		}
		return k.install(c)
	}); err != nil {
		return err
	}
	return os.WriteFile(stamp, list, 0o600)
}

// install puts the modules into the image.
func (k *kernelParts) install(c *cpio) error {
	order, err := k.inOrder()
	if err != nil {
		return err
	}
	for i, name := range order {
		c.file(fmt.Sprintf("modules/%02d-%s.ko", i, name), 0o644, k.modules[name])
	}
	return nil
}

func writeArchive(name string, fill func(*cpio) error) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriterSize(f, 1<<20)
	c := newCpio(w)
	if err := fill(c); err != nil {
		return err
	}
	return errors.Join(c.end(), w.Flush())
}

// finish writes the initrd: the archive of the packages, followed by an archive with mount points
// and the caller's files.
func (img *Image) finish(base string, extra []File) error {
	b, err := os.ReadFile(base)
	if err != nil {
		return err
	}
	own := bytes.NewBuffer(b)
	c := newCpio(own)
	for _, d := range []string{"dev", "proc", "sys", "tmp", "run", "etc"} {
		c.dir(d)
	}
	c.file("etc/passwd", 0o644, []byte("root:x:0:0:root:/:/bin/false\n"))
	c.file("etc/hosts", 0o644, []byte("127.0.0.1 localhost\n"))
	for _, f := range extra {
		c.file(f.Name, f.Mode, f.Data)
	}
	if err := c.end(); err != nil {
		return err
	}
	return os.WriteFile(img.Initrd, own.Bytes(), 0o600)
}
