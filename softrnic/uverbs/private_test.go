package uverbs_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// operation is an entry of OPERATIONS of private.h.
type operation struct {
	name  string
	since int
}

// operations reads OPERATIONS.
func operations(t *testing.T) (all []operation) {
	t.Helper()
	b, err := os.ReadFile("provider/private.h")
	must(t, err)
	_, list, ok := strings.Cut(string(b), "#define OPERATIONS(YES, NO)")
	if !ok {
		t.Fatal("private.h has no OPERATIONS")
	}
	for _, m := range regexp.MustCompile(`YES\((\w+)\)|NO\((\d+)\) /\* (\w+) \*/`).FindAllStringSubmatch(list, -1) {
		o := operation{m[1], 36}
		if m[3] != "" {
			o.name = m[3]
			o.since, _ = strconv.Atoi(m[2]) // digits
		}
		all = append(all, o)
	}
	return all
}

// The functions of a provider are sorted by name, as in libibverbs, and each is there once.
func TestOperationsAreSorted(t *testing.T) {
	all := operations(t)
	if !slices.IsSortedFunc(all, func(a, b operation) int { return strings.Compare(a.name, b.name) }) || len(all) != 93 {
		t.Errorf("%d operations, sorted or not: %v", len(all), all)
	}
	for since, want := range map[int]int{36: 76, 59: 79, 62: 81, 64: 83, 65: 93} {
		n := 0
		for _, o := range all {
			if o.since <= since {
				n++
			}
		}
		if n != want {
			t.Errorf("version %d has %d operations, want %d", since, n, want)
		}
	}
}

// private.h says what is where in the private structs of a version of rdma-core, if RDMA_CORE_SOURCE is
// a folder with its sources: driver.h and verbs.h of libibverbs, and the number in CMakeLists.txt.
func TestPrivateInterface(t *testing.T) {
	source := os.Getenv("RDMA_CORE_SOURCE")
	if source == "" {
		t.Skip("RDMA_CORE_SOURCE names no source of rdma-core")
	}
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(source, name))
		must(t, err)
		return string(b)
	}
	driver, cmake := read("libibverbs/driver.h"), read("CMakeLists.txt")
	version := firstInt(t, cmake, `set\(PACKAGE_VERSION "(\d+)`)
	number := firstInt(t, cmake, `set\(IBVERBS_PABI_VERSION "(\d+)`)
	var want []string
	for _, o := range operations(t) {
		if o.since <= version {
			want = append(want, o.name)
		}
	}
	var has []string
	for _, m := range regexp.MustCompile(`\(\*(\w+)\)\(`).FindAllStringSubmatch(structOf(t, driver, "verbs_context_ops"), -1) {
		has = append(has, m[1])
	}
	if !slices.Equal(has, want) {
		t.Errorf("version %d has the operations\n%v\nand private.h\n%v", version, has, want)
	}
	dir := t.TempDir()
	for _, name := range []string{"verbs.h", "verbs_api.h", "tm_types.h"} {
		must(t, os.MkdirAll(filepath.Join(dir, "infiniband"), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, "infiniband", name), []byte(read("libibverbs/"+name)), 0o644))
	}
	program := "#include <stdatomic.h>\n#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>\n#include \"private.h\"\n" +
		"struct list_node { struct list_node *next, *prev; };\nstruct verbs_sysfs_dev; struct verbs_device;\n"
	for _, s := range []string{"verbs_match_ent", "verbs_device_ops", "verbs_device", "verbs_mr"} {
		if s == "verbs_mr" {
			program += "enum ibv_mr_type { A, B };\n"
		}
		program += structOf(t, driver, s) + "\n"
	}
	for _, same := range []string{
		"verbs_match_ent private_match driver_data data", "verbs_match_ent private_match u by", "verbs_match_ent private_match kind kind",
		"verbs_device_ops private_driver match_max_abi_version most", "verbs_device_ops private_driver match_table matches",
		"verbs_device_ops private_driver alloc_context open", "verbs_device_ops private_driver import_context import",
		"verbs_device_ops private_driver alloc_device make", "verbs_device_ops private_driver uninit_device end",
		"verbs_device private_device ops driver", "verbs_device private_device refcount uses", "verbs_device private_device sysfs found",
		"verbs_mr private_mr mr_type kind", "verbs_mr private_mr access access",
	} {
		w := strings.Fields(same)
		program += fmt.Sprintf("_Static_assert(offsetof(struct %s, %s) == offsetof(struct %s, %s) && sizeof(struct %s) == sizeof(struct %s), \"%s\");\n", w[0], w[2], w[1], w[3], w[0], w[1], same)
	}
	program += "struct layout { int number; const char *has; int since; size_t context; };\nstatic const struct layout all[] = { LAYOUTS };\n" +
		"int main(void)\n{\n\tfor (size_t i = 0; i < sizeof all / sizeof *all; i++)\n" +
		fmt.Sprintf("\t\tif (all[i].number == %d && all[i].since <= %d) return printf(\"%%zu %%zu\", all[i].context, sizeof(struct verbs_context)) < 0;\n\treturn 1;\n}\n", number, version)
	program = strings.Replace(program, "struct layout { int number; const char *has; int since; size_t context; };\n", "", 1) // private.h has it
	c, exe := filepath.Join(dir, "p.c"), filepath.Join(dir, "p")
	must(t, os.WriteFile(c, []byte(program), 0o644))
	compile(t, "gcc", "-I", dir, "-I", "provider", "-o", exe, c)
	out, err := exec.Command(exe).Output()
	must(t, err)
	if ours, theirs, _ := strings.Cut(string(out), " "); ours != theirs {
		t.Errorf("struct verbs_context of version %d has %s bytes, and private.h says %s", version, theirs, ours)
	}
}

func firstInt(t *testing.T, text, pattern string) int {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("no %s", pattern)
	}
	n, err := strconv.Atoi(m[1])
	must(t, err)
	return n
}

// structOf returns the definition of a struct in a header.
func structOf(t *testing.T, header, name string) string {
	t.Helper()
	_, rest, ok := strings.Cut(header, "\nstruct "+name+" {")
	body, _, end := strings.Cut(rest, "\n};")
	if !ok || !end {
		t.Fatalf("no struct %s", name)
	}
	return "struct " + name + " {" + body + "\n};"
}
