package preload

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"testing"
)

// object returns the header of an ELF file.
func object(t *testing.T, kind elf.Type, machine elf.Machine) []byte {
	t.Helper()
	h := elf.Header64{Type: uint16(kind), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT), Ehsize: 64, Shentsize: 64}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS] = byte(elf.ELFCLASS64)
	h.Ident[elf.EI_DATA] = byte(elf.ELFDATA2LSB)
	h.Ident[elf.EI_VERSION] = byte(elf.EV_CURRENT)
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, h); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestLibraryIsOfThisProcessor(t *testing.T) {
	amd, arm := object(t, elf.ET_DYN, elf.EM_X86_64), object(t, elf.ET_DYN, elf.EM_AARCH64)
	for _, c := range []struct {
		name string
		lib  []byte
		arch string
		want bool
	}{
		{"amd64 on amd64", amd, "amd64", true},
		{"arm64 on arm64", arm, "arm64", true},
		{"amd64 on arm64", amd, "arm64", false},
		{"arm64 on amd64", arm, "amd64", false},
		{"amd64 on riscv64", amd, "riscv64", false},
		{"a program", object(t, elf.ET_EXEC, elf.EM_X86_64), "amd64", false},
		{"half a header", amd[:20], "amd64", false},
		{"nothing", nil, "amd64", false},
	} {
		if got := runsOn(c.lib, c.arch); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// The repository has the libraries for both processors, so that a rdmalab that was built without make
// has them.
func TestLibraryOfEachProcessor(t *testing.T) {
	for _, name := range []string{"verbs", "provider"} {
		for arch, want := range map[string]bool{"amd64": true, "arm64": true, "riscv64": false} {
			if lib, ok := libraryOf(name, arch); ok != want || ok != (len(lib) > 0) {
				t.Errorf("%s for %s: %v, %d bytes", name, arch, ok, len(lib))
			}
		}
	}
}
