// Package preload contains two libraries for unmodified RDMA programs, for amd64 and arm64: the one
// that is preloaded, whose C sources are in folder shim beside it, and a provider for libibverbs, of
// folder provider. `make verbs` builds them. On other processors, Library and Provider return false.
package preload

import (
	"bytes"
	"debug/elf"
	"embed"
	"fmt"
	"runtime"
)

//go:embed lib
var files embed.FS

// Library returns the bytes of the preloaded library for the processor of this program. It returns
// false if there is none.
func Library() ([]byte, bool) { return libraryOf("verbs", runtime.GOARCH) }

// Provider returns the bytes of the provider for libibverbs. It returns false if there is none.
func Provider() ([]byte, bool) { return libraryOf("provider", runtime.GOARCH) }

// ProviderFile returns a name of the provider in a folder, of which libibverbs knows Driver only: it
// puts a suffix behind it, with the number of its private interface. One library serves all numbers
// that it knows, and leaves the device to the provider of rxe if it does not know the number.
func ProviderFile(number int) string { return fmt.Sprintf("%s-rdmav%d.so", Driver, number) }

// Driver is the name of the provider in the variable RDMAV_DRIVERS. The numbers of ProviderFile are
// those from FirstPrivate on, also numbers that do not exist yet: then libibverbs does not warn that
// it finds no file.
const (
	Driver       = "librdmalab"
	FirstPrivate = 33
	LastPrivate  = 99
)

func libraryOf(name, arch string) ([]byte, bool) {
	b, err := files.ReadFile("lib/librdmalab-" + name + "-" + arch + ".so")
	if err != nil || !runsOn(b, arch) {
		return nil, false
	}
	return b, true
}

// runsOn returns whether lib is a shared object for the processor that Go calls arch.
func runsOn(lib []byte, arch string) bool {
	f, err := elf.NewFile(bytes.NewReader(lib))
	if err != nil || f.Type != elf.ET_DYN {
		return false
	}
	switch arch {
	case "amd64":
		return f.Machine == elf.EM_X86_64
	case "arm64":
		return f.Machine == elf.EM_AARCH64
	default:
		return false
	}
}
