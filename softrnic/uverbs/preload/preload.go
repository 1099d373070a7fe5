// Package preload contains the library that is preloaded into unmodified RDMA programs, for amd64 and
// arm64. Its C sources are in folder shim beside it; `make verbs` builds it. On other processors,
// Library returns false.
package preload

import (
	"bytes"
	"debug/elf"
	"embed"
	"runtime"
)

//go:embed lib
var files embed.FS

// Library returns the bytes of the library for the processor of this program. It returns false if
// there is none.
func Library() ([]byte, bool) { return libraryOf(runtime.GOARCH) }

func libraryOf(arch string) ([]byte, bool) {
	b, err := files.ReadFile("lib/librdmalab-verbs-" + arch + ".so")
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
