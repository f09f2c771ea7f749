// Lists an image by go-diskfs, or changes one: diskfs list IMAGE, diskfs work IMAGE < OPERATIONS,
// diskfs make IMAGE BYTES. The form of the lines is described in listing.py, the operations in write.rs.
package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path"
	"sort"
	"strconv"
	"strings"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/ext4"
)

const chunk = 65536

var out = bufio.NewWriter(os.Stdout)

func clean(text string) string {
	return strings.NewReplacer("\n", " ", "\t", " ").Replace(strconv.QuoteToASCII(text))
}

func failed(at string, reason any) {
	fmt.Fprintf(out, "!\t%s\t%s\n", hex.EncodeToString([]byte(at)), clean(fmt.Sprint(reason)))
}

func digest(from io.Reader, size int64) (string, error) {
	summed, buffer, zeros := sha256.New(), make([]byte, chunk), make([]byte, chunk)
	var read int64
	for number := uint64(0); ; number++ {
		clear(buffer)
		count, err := io.ReadFull(from, buffer)
		read += int64(count)
		if count > 0 && !bytes.Equal(buffer, zeros) {
			_ = binary.Write(summed, binary.LittleEndian, number)
			summed.Write(buffer)
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			break
		}
		if err != nil {
			return "", err
		}
		if read > size+chunk {
			return "", fmt.Errorf("more than %d bytes were read", size)
		}
	}
	if read != size {
		return "", fmt.Errorf("%d bytes of %d were read", read, size)
	}
	_ = binary.Write(summed, binary.LittleEndian, ^uint64(0))
	_ = binary.Write(summed, binary.LittleEndian, uint64(size))
	return hex.EncodeToString(summed.Sum(nil)), nil
}

func kind(mode os.FileMode) string {
	switch {
	case mode.IsRegular():
		return "f"
	case mode.IsDir():
		return "d"
	case mode&os.ModeSymlink != 0:
		return "l"
	case mode&os.ModeNamedPipe != 0:
		return "p"
	case mode&os.ModeSocket != 0:
		return "s"
	case mode&os.ModeCharDevice != 0:
		return "c"
	case mode&os.ModeDevice != 0:
		return "b"
	}
	return "?"
}

func permissions(mode os.FileMode) uint32 {
	bits := uint32(mode.Perm())
	if mode&os.ModeSetuid != 0 {
		bits |= 0o4000
	}
	if mode&os.ModeSetgid != 0 {
		bits |= 0o2000
	}
	if mode&os.ModeSticky != 0 {
		bits |= 0o1000
	}
	return bits
}

// A path as io/fs has it.
func named(at string) string {
	if at == "" {
		return "."
	}
	return at
}

// One entry; returns whether it is a directory.
func entry(volume *ext4.FileSystem, at string) (isDirectory bool) {
	defer func() {
		if reason := recover(); reason != nil {
			fmt.Fprintf(out, "!!\t%s\t%s\n", hex.EncodeToString([]byte(at)), clean(fmt.Sprint(reason)))
		}
	}()
	info, err := volume.Stat(named(at))
	if err != nil && at != "" {
		failed(at, err)
		return false
	}
	if at == "" && err != nil { // the root has no entry that would be found
		fmt.Fprintf(out, "\td\t?\t?\t?\t?\t?\t?\t-\t?\n")
		return true
	}
	held, what := "-", kind(info.Mode())
	about := info.Sys().(*ext4.StatT)
	switch what {
	case "f":
		opened, err := volume.Open(named(at))
		if err == nil {
			held, err = digest(opened, info.Size())
			_ = opened.Close()
		}
		if err != nil {
			failed(at, err)
			return false
		}
	case "l":
		target, err := volume.ReadLink(named(at))
		if err != nil {
			failed(at, err)
			return false
		}
		held = hex.EncodeToString([]byte(target))
	}
	attributes, err := volume.GetXattr(named(at))
	if err != nil {
		failed(at, err)
		return false
	}
	names := []string{}
	for name, value := range attributes {
		names = append(names, hex.EncodeToString([]byte(name))+"="+hex.EncodeToString(value))
	}
	sort.Strings(names)
	pairs := strings.Join(names, ",")
	if pairs == "" {
		pairs = "-"
	}
	fmt.Fprintf(out, "%s\t%s\t%o\t%d\t%d\t%d\t%d\t%d\t%s\t%s\n", hex.EncodeToString([]byte(at)), what,
		permissions(info.Mode()), about.UID, about.GID, info.Size(), about.Nlink, info.ModTime().UnixNano(),
		held, pairs)
	return what == "d"
}

func children(volume *ext4.FileSystem, at string) (names []string) {
	defer func() {
		if reason := recover(); reason != nil {
			fmt.Fprintf(out, "!!\t%s\t%s\n", hex.EncodeToString([]byte(at)), clean(fmt.Sprint(reason)))
		}
	}()
	found, err := volume.ReadDir(named(at))
	if err != nil {
		failed(at, err)
	}
	for _, one := range found {
		if one.Name() != "." && one.Name() != ".." {
			names = append(names, one.Name())
		}
	}
	return names
}

func list(volume *ext4.FileSystem) {
	for todo := []string{""}; len(todo) > 0; {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if strings.Count(at, "/") > 300 {
			failed(at, "the tree does not end")
			break
		}
		if entry(volume, at) {
			for _, name := range children(volume, at) {
				todo = append(todo, strings.TrimPrefix(at+"/"+name, "/"))
			}
		}
	}
	fmt.Fprintln(out, ".")
}

func content(size, seed uint64) []byte {
	bytes := make([]byte, size)
	for at := range bytes {
		seed = seed*6364136223846793005 + 1442695040888963407
		bytes[at] = byte(seed >> 56)
	}
	return bytes
}

func one(volume *ext4.FileSystem, words []string) error {
	number := func(at int) uint64 {
		found, err := strconv.ParseUint(words[at], 10, 64)
		if err != nil {
			panic(err)
		}
		return found
	}
	at := words[1]
	switch words[0] {
	case "mkdir":
		return volume.Mkdir(at)
	case "write", "append":
		flags := os.O_RDWR | os.O_CREATE
		if words[0] == "append" {
			flags = os.O_RDWR
		}
		opened, err := volume.OpenFile(at, flags)
		if err != nil {
			return err
		}
		if words[0] == "append" {
			if _, err = opened.Seek(0, io.SeekEnd); err != nil {
				return err
			}
		}
		if _, err = opened.Write(content(number(2), number(3))); err != nil {
			return err
		}
		return opened.Close()
	case "remove":
		return volume.Remove(at)
	case "rename":
		return volume.Rename(at, words[2])
	case "symlink":
		return volume.Symlink(words[2], at)
	case "link":
		return volume.Link(at, words[2])
	case "truncate":
		return volume.Truncate(at, int64(number(2)))
	case "chmod":
		return volume.Chmod(at, os.FileMode(number(2)))
	}
	return fmt.Errorf("%s is no operation", words[0])
}

// Carries out operations, and says of each whether it was done.
func work(volume *ext4.FileSystem) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		func() {
			defer func() {
				if reason := recover(); reason != nil {
					fmt.Fprintf(out, "panic\t%s\n", clean(fmt.Sprint(reason)))
				}
			}()
			if err := one(volume, strings.Fields(lines.Text())); err != nil {
				fmt.Fprintf(out, "error\t%s\n", clean(err.Error()))
				return
			}
			fmt.Fprintln(out, "done")
		}()
	}
	fmt.Fprintln(out, ".")
}

func run() error {
	name := os.Args[2]
	if os.Args[1] == "make" {
		size, err := strconv.ParseInt(os.Args[3], 10, 64)
		if err != nil {
			return err
		}
		storage, err := file.CreateFromPath(name, size)
		if err != nil {
			return err
		}
		volume, err := ext4.Create(storage, size, 0, 512, &ext4.Params{})
		if err != nil {
			return err
		}
		return volume.Close()
	}
	storage, err := file.OpenFromPath(name, os.Args[1] == "list")
	if err != nil {
		return err
	}
	about, err := os.Stat(name)
	if err != nil {
		return err
	}
	volume, err := ext4.Read(storage, about.Size(), 0, 512)
	if err != nil {
		return err
	}
	if os.Args[1] == "list" {
		list(volume)
		return nil
	}
	work(volume)
	return volume.Close()
}

func main() {
	defer out.Flush()
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage:", path.Base(os.Args[0]), "list|work|make IMAGE [BYTES]")
		os.Exit(2)
	}
	if err := run(); err != nil {
		out.Flush()
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
