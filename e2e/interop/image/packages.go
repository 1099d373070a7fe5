package image

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// wanted are the packages of the image; apt adds what they depend on.
var wanted = []string{
	"iproute2", "ibverbs-providers", "ibverbs-utils", "rdmacm-utils", "perftest", "python3-minimal", "python3-pyverbs",
	"libc6", "libstdc++6",
}

// needless are the beginnings of names of packages that are needed only to install other packages.
var needless = []string{
	"adduser_", "debconf_", "debianutils_", "dpkg_", "init-system-helpers_", "libgdbm", "libpam", "libperl", "lsb-base_",
	"media-types_", "passwd_", "pci.ids_", "perl", "systemd", "tar_", "udev_",
}

// kernelMeta is the package that depends on the stock kernel of this distribution.
const kernelMeta = "linux-image-amd64"

// fetch downloads all packages into dir, unless dir has them already. It returns the name of the
// kernel's package.
func fetch(ctx context.Context, dir string) (kernel string, err error) {
	out, err := command(ctx, "apt-cache", "depends", kernelMeta)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(out) {
		if _, name, ok := strings.Cut(strings.TrimSpace(line), "Depends: linux-image-"); ok {
			kernel = "linux-image-" + name
			break
		}
	}
	if kernel == "" {
		return "", fmt.Errorf("%w: apt knows no %s; run apt-get update", ErrMissing, kernelMeta)
	}
	stamp := filepath.Join(dir, "complete")
	list := kernel + " " + strings.Join(wanted, " ")
	if have, err := os.ReadFile(stamp); err == nil && string(have) == list {
		return kernel, nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Join(dir, "partial"), 0o755); err != nil {
		return "", err
	}
	// With an empty list of installed packages apt fetches all dependencies.
	status := filepath.Join(dir, "installed")
	if err := os.WriteFile(status, nil, 0o600); err != nil {
		return "", err
	}
	args := append([]string{
		"-qq", "-y", "--no-install-recommends", "--download-only", "-o", "Dir::State::status=" + status,
		"-o", "Dir::Cache::archives=" + dir + "/", "-o", "Debug::NoLocking=true", "install",
	}, wanted...)
	if _, err := command(ctx, "apt-get", args...); err != nil {
		return "", fmt.Errorf("%w: packages cannot be fetched; run apt-get update: %w", ErrMissing, err)
	}
	cmd := exec.CommandContext(ctx, "apt-get", "-qq", "download", kernel)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s cannot be fetched: %s", ErrMissing, kernel, out)
	}
	return kernel, os.WriteFile(stamp, []byte(list), 0o600)
}

// command runs a program and returns its output. The error contains the program's error message.
func command(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%s: %w: %s", name, err, exit.Stderr)
	}
	return string(out), err
}

// contents calls f for every entry of a package.
func contents(ctx context.Context, deb string, f func(h *tar.Header, r io.Reader) error) error {
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	for t := tar.NewReader(pipe); err == nil; {
		var h *tar.Header
		if h, err = t.Next(); err == nil {
			err = f(h, t)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	_, copyErr := io.Copy(io.Discard, pipe) // so that dpkg-deb can write the rest and end
	return errors.Join(err, copyErr, cmd.Wait())
}

// userland writes the programs and libraries of the packages in dir.
func userland(ctx context.Context, dir string, c *cpio) error {
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil {
		return err
	}
	for _, d := range []string{"bin", "sbin", "lib", "lib64"} {
		c.dir("usr/" + d)
		c.symlink(d, "usr/"+d)
	}
	for _, deb := range debs {
		base := filepath.Base(deb)
		if strings.HasPrefix(base, "linux-image-") || begins(base, needless...) {
			continue
		}
		if err := contents(ctx, deb, func(h *tar.Header, r io.Reader) error { return c.unpack(h, r) }); err != nil {
			return fmt.Errorf("%s: %w", base, err)
		}
	}
	return nil
}

// unpack puts one entry of a package into the image.
func (c *cpio) unpack(h *tar.Header, r io.Reader) error {
	name := merged(path.Clean(h.Name))
	if !useful(name) {
		return nil
	}
	switch h.Typeflag {
	case tar.TypeReg:
		data, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		c.file(name, h.FileInfo().Mode(), data)
	case tar.TypeSymlink:
		c.symlink(name, h.Linkname)
	case tar.TypeLink:
		c.symlink(name, "/"+merged(path.Clean(h.Linkname)))
	}
	return nil
}

func begins(name string, with ...string) bool {
	return slices.ContainsFunc(with, func(s string) bool { return strings.HasPrefix(name, s) })
}

// merged returns the path of a package's file below usr: some packages still have files in bin,
// sbin and lib, which are links to folders of usr.
func merged(name string) string {
	if begins(name, "bin/", "sbin/", "lib/", "lib64/") {
		return "usr/" + name
	}
	return name
}

// useful reports whether the image needs a file. The image is in the guest's memory, so other files
// are left out.
func useful(name string) bool {
	const provider = "usr/lib/x86_64-linux-gnu/libibverbs/"
	switch {
	case strings.HasPrefix(name, provider):
		return strings.HasPrefix(name, provider+"librxe-")
	case strings.HasPrefix(name, "etc/libibverbs.d/"):
		return name == "etc/libibverbs.d/rxe.driver"
	case strings.HasPrefix(name, "usr/lib/python3"):
		return !strings.Contains(name, "/test") && !strings.Contains(name, "/config-") && !strings.Contains(name, "/pydoc_data/")
	}
	return begins(name, "usr/bin/", "usr/sbin/", "usr/lib") &&
		!begins(name, "usr/lib/x86_64-linux-gnu/gconv/", "usr/lib/x86_64-linux-gnu/perl", "usr/lib/systemd/", "usr/lib/udev/")
}
