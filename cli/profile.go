package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/swordbox/handler"
)

// profileWait bounds how long a daemon may take to make a profile after the time that it covers.
const profileWait = 15 * time.Second

type profiled struct {
	Node  string `json:"node"`
	File  string `json:"file"`
	Bytes int    `json:"bytes"`
}

func profileCmd() *cobra.Command {
	var dir string
	var lasting time.Duration
	cmd := &cobra.Command{
		Use:               "profile [NODE…]",
		Short:             "Record where the daemons of hosts and of the switch spend processor time",
		ValidArgsFunction: everyArgument(nodeNames),
		RunE:              func(cmd *cobra.Command, nodes []string) error { return runProfile(cmd, nodes, lasting, dir) },
	}
	cmd.Flags().DurationVar(&lasting, "for", 5*time.Second, "time to record, from 100ms to 10m")
	cmd.Flags().StringVar(&dir, "dir", ".", "folder of the files; made if it does not exist")
	writesFolder(cmd, "dir")
	must(cmd.RegisterFlagCompletionFunc("dir", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}))
	outputFlag(cmd)
	return cmd
}

func runProfile(cmd *cobra.Command, names []string, lasting time.Duration, dir string) error {
	if err := control.CheckProfile(lasting); err != nil {
		return badUse("--for %w", err)
	}
	rack, paths, err := rackOf(cmd)
	if err != nil {
		return err
	}
	nodes, err := profiledNodes(rack, names)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return badUse("--dir: %w", err)
	}
	files := make([]*pendingFile, len(nodes))
	for i, node := range nodes {
		if files[i], err = newPendingFile(filepath.Join(dir, node+".pprof")); err != nil {
			return badUse("--dir: %w", err)
		}
		defer files[i].discard()
	}
	list := make([]profiled, len(nodes))
	err = atOnce(nodes, func(i int, node string) error {
		b, err := recordProfile(cmd.Context(), control.NewClient(paths.Socket(node)), node, lasting)
		if err == nil {
			err = files[i].publish(b, 0o644)
		}
		if err == nil {
			list[i] = profiled{Node: node, File: files[i].name, Bytes: len(b)}
		}
		return err
	})
	list = slices.DeleteFunc(list, func(p profiled) bool { return p.Node == "" })
	if cmd.Context().Err() != nil {
		err = errInterrupted
	}
	return errors.Join(err, show(cmd, list, printProfiles))
}

// profiledNodes returns the nodes with the given names, each once; all nodes if there are no names. Of
// a compact rack, whose daemons are one process, it returns the first of them.
func profiledNodes(r *rackfile.Rack, names []string) (nodes []string, err error) {
	if len(names) == 0 {
		names = append(r.SwitchNames(), r.HostNames()...)
	}
	for _, name := range names {
		if err := checkNode(r, name); err != nil {
			return nil, err
		}
		if !slices.Contains(nodes, name) {
			nodes = append(nodes, name)
		}
	}
	if r.Shared() {
		nodes = nodes[:1]
	}
	return nodes, nil
}

func recordProfile(ctx context.Context, client *control.Client, node string, lasting time.Duration) ([]byte, error) {
	if err := awake(ctx, client, node); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, lasting+profileWait)
	defer cancel()
	b, err := client.Profile(ctx, lasting)
	return b, withNode(err, node)
}

func printProfiles(out io.Writer, list []profiled) error {
	if len(list) == 0 {
		return nil
	}
	err := handler.WriteTable(out, list, "", "NODE\tBYTES\tFILE", func(p *profiled) string {
		return fmt.Sprintf("%s\t%d\t%s", p.Node, p.Bytes, p.File)
	})
	if err == nil {
		_, err = fmt.Fprintf(out, "\nthe functions that used most:  go tool pprof -top %[1]s\nas graphs in a browser:        go tool pprof -http=: %[1]s\n", list[0].File)
	}
	return err
}

// pendingFile is a file that gets its name when it is complete. Until then it has a temporary name
// in the same folder.
type pendingFile struct {
	name string
	file *os.File
}

// newPendingFile makes the temporary file. The caller must call discard at the end.
func newPendingFile(name string) (*pendingFile, error) {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-*")
	if err != nil {
		return nil, err
	}
	return &pendingFile{name: name, file: f}, nil
}

// publish writes the file, and gives it its permissions and its name.
func (p *pendingFile) publish(b []byte, mode os.FileMode) error {
	_, err := p.file.Write(b)
	err = errors.Join(err, p.file.Chmod(mode), p.file.Close())
	if err != nil {
		return err
	}
	return os.Rename(p.file.Name(), p.name)
}

// discard removes the temporary file, if publish has not given it its name.
func (p *pendingFile) discard() {
	_ = p.file.Close()           // if publish has closed the file before, the error does not matter
	_ = os.Remove(p.file.Name()) // after publish there is none
}
