package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// writesNote is the annotation of flags, and of commands with an argument, that name what the command writes: its
// value is outFile or outFolder. checkOutputs looks at them before the command begins.
const writesNote = "rdmalab_writes"

const (
	outFile   = "file"   // a file in a folder that must exist
	outFolder = "folder" // a folder that the command makes, with those above it
)

// writesFile says that flags of a command name files that it writes. "" and - are no files, nor are addresses
// that begin with http:// or https://.
func writesFile(cmd *cobra.Command, flags ...string) { noteOutput(cmd, outFile, flags) }

// writesFolder says that flags of a command name folders that it makes and writes.
func writesFolder(cmd *cobra.Command, flags ...string) { noteOutput(cmd, outFolder, flags) }

func noteOutput(cmd *cobra.Command, kind string, flags []string) {
	for _, flag := range flags {
		must(cmd.Flags().SetAnnotation(flag, writesNote, []string{kind}))
	}
}

// checkedOutputs changes cmd and every command below it: a command begins only if what it is to write can be written.
func checkedOutputs(cmd *cobra.Command) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if err := checkOutputs(cmd, args); err != nil {
				return err
			}
			return run(cmd, args)
		}
	}
	for _, c := range cmd.Commands() {
		checkedOutputs(c)
	}
}

// checkOutputs returns an error about the command line if a file or folder that a flag or the argument names cannot be
// written. It leaves no file.
func checkOutputs(cmd *cobra.Command, args []string) (err error) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		kind := f.Annotations[writesNote]
		if len(kind) == 0 || err != nil {
			return
		}
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand
		}
		if why := checkOutput(kind[0], f.Value.String()); why != nil {
			err = badUse("%s %s: %w", name, f.Value, why)
		}
	})
	if kind := cmd.Annotations[writesNote]; err == nil && kind != "" && len(args) > 0 {
		if why := checkOutput(kind, args[0]); why != nil {
			err = badUse("%s: %w", args[0], why)
		}
	}
	return err
}

// checkOutput says why a file or folder cannot be written; nil if it can.
func checkOutput(kind, name string) error {
	if name == "" || name == "-" || strings.HasPrefix(name, "http://") || strings.HasPrefix(name, "https://") {
		return nil
	}
	info, err := os.Stat(name)
	folder := filepath.Dir(name)
	switch {
	case kind == outFolder:
		return checkFolder(name, true)
	case err == nil && info.IsDir():
		return errors.New("that is a folder; name a file in it")
	case err == nil:
		return writableFile(name, info)
	}
	return checkFolder(folder, false)
}

// checkFolder says why no file can be made in a folder. If made is set, the command makes the folder, in the nearest
// one above it that exists.
func checkFolder(folder string, made bool) error {
	info, err := os.Stat(folder)
	switch {
	case (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)) && made && filepath.Dir(folder) != folder:
		return checkFolder(filepath.Dir(folder), true)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no folder %s; make it first: mkdir -p %s", folder, quoted(folder))
	case errors.Is(err, syscall.ENOTDIR) || err == nil && !info.IsDir():
		return fmt.Errorf("%s is no folder; name another one", folder)
	case err != nil:
		return fmt.Errorf("folder %s: %w; name another one", folder, plainCause(err))
	}
	return writableFolder(folder)
}

// writableFile says why a file that exists cannot be written. Pipes and devices are not opened.
func writableFile(name string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return nil
	}
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return unwritable("the file", err)
	}
	return f.Close()
}

// writableFolder says why no file can be made in a folder: it makes one, and removes it.
func writableFolder(folder string) error {
	f, err := os.CreateTemp(folder, ".rdmalab-*")
	if err != nil {
		return unwritable("folder "+folder, err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

func unwritable(what string, err error) error {
	sudo := either(errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0, ", or run the command with sudo", "")
	return fmt.Errorf("%s cannot be written: %w; name another one%s", what, plainCause(err), sudo)
}

// plainCause returns the cause of an error of package os without the path.
func plainCause(err error) error {
	var of *fs.PathError
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}

// checkEnvOutputs returns an error about the environment if it names a JUnit file, or a folder of bundles, for the
// command of a command line, and that cannot be written.
func checkEnvOutputs(root *cobra.Command, args []string) error {
	cmd, _, err := root.Find(args)
	if err != nil || slices.Contains(args, "--help") {
		return nil
	}
	if file := os.Getenv(junitEnv); file != "" && checks(cmd) {
		info, err := os.Stat(file)
		switch {
		case err != nil:
			err = checkFolder(filepath.Dir(file), true)
		case !info.Mode().IsRegular():
			err = errors.New("that is no file; name another one")
		default:
			err = writableFile(file, info)
		}
		if err != nil {
			return badUse("%s=%s: %w", junitEnv, file, err)
		}
	}
	if folder := os.Getenv(bundlesEnv); folder != "" && (of(cmd, "run") || of(cmd, "perf")) {
		if err := checkFolder(folder, true); err != nil {
			return badUse("%s=%s: %w", bundlesEnv, folder, err)
		}
	}
	return nil
}
