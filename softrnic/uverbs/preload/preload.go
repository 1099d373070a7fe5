// Package preload contains the library that is preloaded into unmodified RDMA programs (folder shim
// beside it), as `make verbs` has built it. If this program was built without the library, or with
// one for another processor, Library returns false.
package preload

import (
	"bytes"
	"debug/elf"
	"embed"
	"runtime"
)

// Name is the name of the library's file in folder lib.
const Name = "librdmalab-verbs.so"

//go:embed lib
var files embed.FS

// Library returns the bytes of the library. It returns false if the library was not built before
// this program was built, or if it was built for another processor than this program.
func Library() ([]byte, bool) {
	b, err := files.ReadFile("lib/" + Name)
	if err != nil || !runsOn(b, runtime.GOARCH) {
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
